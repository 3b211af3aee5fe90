// The state of the page.

// `points`: when, and how many had completed and failed. `skew`: how much the server's clock is ahead. `span`, `width`, `at`: of the
// chart, seconds, pixels, and where the pointer is. `ended`: jobs that ended, without their results. `whole`: what is shown uncut.
// `ends`: the ends of large outputs, by their blobs, which never change.
const state = { user: null, route: null, problem: '', points: [], totals: null, skew: 0, span: 600, width: 800, at: null,
  busy: new Set(), plans: new Map(), ended: new Map(), tools: null, toolsAt: 0, whole: new Set(), ends: new Map(), loginError: '', events: null };

const admin = () => state.user && state.user.role === 'admin';
