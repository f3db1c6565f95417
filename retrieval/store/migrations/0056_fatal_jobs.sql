-- What killed all who worked on it is not begun again by itself: upkeep asks for these of each bank.
create index operations_fatal on operations (bank) where status = 'failed' and deaths >= 3;
