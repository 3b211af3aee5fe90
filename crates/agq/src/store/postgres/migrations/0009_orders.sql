-- The envelope of the signed order that has the plan, JSON as it was submitted.
ALTER TABLE agq.plans ADD COLUMN envelope text;
