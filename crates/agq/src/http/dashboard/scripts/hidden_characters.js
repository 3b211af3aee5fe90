// Escapes of hidden characters.

// Control characters except tab and line feed, and characters that change the direction of text or
// end a line, as in `is_control` of agenix-protocol.
const CONTROLS = '\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069';
// Characters without a width, with which different texts look equal, as in `is_hidden`.
const WIDTHLESS = '\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200d\\u2060-\\u2065\\u206a-\\u206f\\u3164'
  + '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufff8\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}';
// Private-use characters for bytes that are not UTF-8.
const BYTE_ESCAPES = '\\u{10fe80}-\\u{10feff}';
const HIDDEN = new RegExp(`[${CONTROLS}${WIDTHLESS}${BYTE_ESCAPES}]`, 'gu');
// The output of tasks keeps characters without a width, because words and emoji contain them, and
// carriage returns before a line feed.
const HIDDEN_IN_OUTPUT = new RegExp(`(?!\\r\\n)[${CONTROLS}]`, 'gu');

// Returns a text with its hidden characters as `\r`, `\x1b`, `\u202e` or `\xe9`, as agx shows them.
function visible(text, hidden = HIDDEN) {
  return String(text).replace(hidden, (c) => {
    const code = c.codePointAt(0);
    if (c === '\r') return '\\r';
    if (code < 0x20 || code >= 0x10fe80) return `\\x${(code & 0xff).toString(16).padStart(2, '0')}`;
    return c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
  });
}
