// Requests to agq, and JSON with integers of any size.

class Ended extends Error {}

async function ask(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (body !== undefined && state.user) headers['X-CSRF-Token'] = state.user.csrf;
  let response;
  let answer = null;
  try {
    response = await fetch(`/dashboard/${path}`, { method: body === undefined ? 'GET' : 'POST', headers, signal,
      body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', credentials: 'same-origin' });
    const text = await response.text();
    answer = text && (response.headers.get('content-type') || '').includes('json') ? JSON.parse(text) : null;
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('agq cannot be reached. Is it running? This page tries again by itself.');
  }
  if (response.ok) return answer;
  const told = answer && answer.error;
  const why = told && (told.message || told) || `agq answered with the HTTP status ${response.status}.`;
  throw response.status === 401 ? new Ended(why) : new Error(why);
}

function reply(one) {
  if (one.error !== undefined) throw new Error(one.error);
  return one.reply;
}

const command = async (words, signal) => reply(await ask('command', words, signal));
const commands = async (list, signal) => list.length === 0 ? [] : (await ask('command', list, signal)).replies;
const parse = (text) => text === null || text === undefined ? null : JSON.parse(exact(text));

// JavaScript rounds integers beyond 2^53, so `exact` makes them strings with a mark, because an id
// must stay as it is.
const MARK = '\\u0000';
const exact = (text) => text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
  /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${MARK}${token}"` : token);
// Returns a value as JSON for people, with marked strings as integers again.
const pretty = (value) => JSON.stringify(value, null, 2).replace(/"\\u0000(-?\d{16,})"/g, '$1');
