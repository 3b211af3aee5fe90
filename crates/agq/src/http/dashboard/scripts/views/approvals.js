// The plans of the overview that wait for approval.

// Maximum number of plans whose tasks are fetched for the table.
const MAX_APPROVALS = 20;

// Returns the approvals that wait, each with its plan. A plan with another digest than the approval
// has been replaced meanwhile, and is left out.
async function waitingApprovals(list, signal) {
  const waiting = list.map(parse).filter((approval) => approval.state === 'waiting').slice(0, MAX_APPROVALS);
  const plans = await commands(waiting.map(({ plan_id: id }) => ['PLAN.GET', id]), signal);
  return Promise.all(waiting.map(async (approval, n) => {
    const json = plans[n].reply;
    const isSame = json && [approval.digest, undefined].includes(await digest(approval.policy, json));
    return { ...approval, plan: isSame ? parse(json) : null };
  }));
}

// Returns the digest of a plan and a policy. Browsers compute it only for pages from this machine or
// over TLS, and otherwise there is none.
async function digest(policy, plan) {
  if (!crypto.subtle) return undefined;
  const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`${policy}\0${plan}`));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Each argument is quoted as in JSON, so that no argument looks like two, or like a new line.
const argv = (task) => [task.command, ...(task.args || [])].map((word) => JSON.stringify(word)).join(' ');

// Returns the fields of a document that are not among `shown`, each with its value in JSON.
const others = (fields, shown) => Object.entries(fields).filter(([name]) => !shown.includes(name))
  .map(([name, value]) => `${name} ${JSON.stringify(value)}`);

function describe({ plan }) {
  if (!plan) return ['this is not the plan that waits: reload the page'];
  const task = (one) => [`task ${one.task_number}: ${argv(one)}`, ...others(one, ['task_number', 'command', 'args'])];
  return [...plan.tasks.flatMap(task), ...others(plan, ['plan_id', 'tasks'])];
}

function decide(approval, verb) {
  const key = `approval ${approval.plan_id}`;
  const text = `${describe(approval).join('; ')}. Digest ${approval.digest}`;
  return button(verb, key, { 'aria-label': `${verb} plan ${approval.plan_id}` }, async () => {
    const done = verb === 'Approve' ? 'approved: its jobs run' : 'rejected: its jobs are cancelled';
    if (await confirmed(`${verb} plan ${approval.plan_id}?`, text, verb, 'Not now')) {
      act(key, [`PLAN.${verb.toUpperCase()}`, approval.plan_id, approval.digest], `Plan ${approval.plan_id} is ${done}.`);
    }
  });
}

function approvalTable(approvals) {
  return table('Plans that wait for approval', ['Plan', 'What runs', 'Reason', 'Expires', ...(admin() ? [''] : [])],
    approvals.map((approval) => ({ id: approval.plan_id, attrs: { 'data-approval': approval.plan_id }, cells: [
      cell('name', h('span', { class: 'id' }, approval.plan_id), h('small', null, `submitted by ${approval.submitted_by || 'a key without a name'}`)),
      h('ul', { class: 'argv' }, describe(approval).map((line) => h('li', null, h('code', null, line)))),
      approval.reasons.join('; '), cell('time', approval.expires_at ? when(approval.expires_at) : 'never'),
      ...(admin() ? [cell('do', ...(approval.plan ? [decide(approval, 'Approve'), decide(approval, 'Reject')] : []))] : [])] })));
}
