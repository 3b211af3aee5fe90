-- Owners of plans and actions, as role:name. It is null for what the session key submitted. The record of an action has its
-- owner, too.
ALTER TABLE agq.plans ADD COLUMN owner text COLLATE "C";
ALTER TABLE agq.actions ADD COLUMN owner text COLLATE "C";
CREATE INDEX plans_of_owners ON agq.plans (owner, plan_id) WHERE owner IS NOT NULL;
CREATE INDEX actions_of_owners ON agq.actions (owner, action_id) WHERE owner IS NOT NULL;
