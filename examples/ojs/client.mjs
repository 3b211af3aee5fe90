// One request to agq, and its errors as sentences: what producer.mjs and worker.mjs share.

const ADDRESS = (process.env.AGQ_URL || "http://127.0.0.1:6381").replace(/\/+$/, "");
const MEDIA_TYPE = "application/openjobspec+json";

/** A request that came to nothing; `status` is undefined where no answer came. */
export class Trouble extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }

  get mayPass() {
    return this.status === undefined || this.status === 429 || this.status >= 500;
  }
}

/** Ends the program with a sentence. */
export function quit(message, code = 1) {
  console.error(message);
  process.exit(code);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function sessionKey() {
  const key = (process.env.AGQ_SESSION_KEY ?? "").trim();
  if (key) return key;
  const message = "AGQ_SESSION_KEY is not set, and agq lets nobody in without it. ";
  return quit(`${message}Set it to the key that agq has.`);
}

function checkAddress() {
  if (/^https?:\/\/[^/]/.test(ADDRESS)) return;
  quit(`AGQ_URL (${ADDRESS}) is no address. Set it to something like http://127.0.0.1:6381.`);
}

/** Sends a request, and returns what the answer's JSON says. */
export async function call(method, path, body, timeoutMs = 10_000) {
  checkAddress();
  const headers = { Authorization: `Bearer ${sessionKey()}`, "Content-Type": MEDIA_TYPE };
  const signal = AbortSignal.timeout(timeoutMs);
  let answer, text;
  try {
    answer = await fetch(`${ADDRESS}/ojs/v1${path}`, { method, headers, signal, body: JSON.stringify(body) });
    text = await answer.text();
  } catch (error) {
    const reason = error.cause?.message || error.cause?.code || error.message;
    throw new Trouble(
      `No answer came from agq at ${ADDRESS} (${reason}). ` +
        "Start agq with --http, or set AGQ_URL to where it listens.",
    );
  }
  if (answer.status === 401) {
    const message = `agq at ${ADDRESS} does not know the key. Set AGQ_SESSION_KEY to the key that agq has.`;
    throw new Trouble(message, 401);
  }
  const told = parsed(text);
  if (!answer.ok) throw refused(answer.status, told.error ?? {});
  return told;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    const message = `What answers at ${ADDRESS} sends no JSON, so it is not agq. `;
    throw new Trouble(`${message}Set AGQ_URL to the address of agq's --http.`, 400);
  }
}

function refused(status, { message, hint = "" }) {
  return new Trouble(`agq refused the request (${status}): ${message}. ${hint}`.trim(), status);
}
