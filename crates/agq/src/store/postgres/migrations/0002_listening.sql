-- Whether somebody at a node listens to what happens to jobs and actions: nobody else need be told.
ALTER TABLE agq.instances ADD COLUMN is_listening boolean NOT NULL DEFAULT false;
