// The view with the form for the login.

const loginView = {
  title: () => 'Log in',
  draw: () => [h('form', { id: 'login', class: 'panel', onsubmit: login }, h('h1', null, 'Log in'),
    // For password managers, which keep a key by a name.
    h('input', { type: 'text', name: 'username', value: 'agq', autocomplete: 'username', hidden: true, readonly: true }),
    h('label', { for: 'key' }, 'Session key'),
    h('input', { id: 'key', name: 'key', type: 'password', required: true, autocomplete: 'current-password', spellcheck: 'false',
      'aria-describedby': 'key-help login-error', 'aria-invalid': state.loginError ? 'true' : null }),
    h('p', { id: 'key-help', class: 'muted' }, 'The key that agq was started with, or one from its config file.'),
    h('p', { id: 'login-error', role: 'alert' }, state.loginError),
    h('button', { class: 'main', 'aria-disabled': state.busy.has('login') ? 'true' : null },
      state.busy.has('login') ? 'Logging in …' : 'Log in'))],
};

async function login(event) {
  event.preventDefault();
  if (state.busy.has('login')) return;
  const key = $('key').value;
  state.busy.add('login');
  state.loginError = '';
  draw();
  try {
    const user = await ask('login', { key });
    $('key').value = '';
    state.busy.delete('login');
    enter(user);
  } catch (error) {
    state.busy.delete('login');
    state.loginError = error.message;
    draw();
    $('key').focus();
    $('key').select();
  }
}
