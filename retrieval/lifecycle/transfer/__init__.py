"""How banks leave a server and come into one: archives, copies, templates, backups."""
