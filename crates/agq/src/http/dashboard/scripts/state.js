// The state of the page.

// `points`: times, each with the numbers of jobs that had completed and failed by then.
// `skew`: the milliseconds that the clock of agq is ahead.
// `span`, `width`, `at`: the seconds and the pixels of the chart, and the time at the pointer.
// `ended`: jobs that ended, without their results.
// `whole`: the texts that are shown uncut.
// `ends`: the ends of large outputs, by their blobs, which never change.
const state = { user: null, route: null, problem: '', points: [], totals: null, skew: 0, span: 600, width: 800, at: null,
  busy: new Set(), plans: new Map(), ended: new Map(), tools: null, toolsAt: 0, whole: new Set(), ends: new Map(), loginError: '', events: null };

const admin = () => state.user && state.user.role === 'admin';
