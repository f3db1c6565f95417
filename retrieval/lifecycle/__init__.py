"""What happens to a bank as a whole: it moves, is copied, erased, watched and recorded."""
