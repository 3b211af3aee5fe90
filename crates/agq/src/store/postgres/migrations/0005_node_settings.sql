-- What a node goes by, for people to compare, and after how much silence it is gone, which it chose itself.
ALTER TABLE agq.instances ADD COLUMN settings text, ADD COLUMN silence_secs double precision NOT NULL DEFAULT 0;
