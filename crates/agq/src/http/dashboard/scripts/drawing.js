// Drawing: a description of the page is laid over the page, and only what differs is changed, so
// that focus, scroll positions and opened details stay. Data from the server becomes text nodes and
// attributes, never markup. Hidden characters of text nodes are escaped.

const SVG = 'http://www.w3.org/2000/svg';
const EMPTY = [null, undefined, false];

function h(tag, attrs, ...children) {
  return { tag, attrs: attrs || {}, key: attrs?.key, children: children.flat(Infinity) };
}

function create(want, parent) {
  if (EMPTY.includes(want)) return document.createComment('');
  if (typeof want !== 'object') return document.createTextNode('');
  const node = want.tag === 'svg' || parent.namespaceURI === SVG
    ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
  node.drawn = { attrs: {}, handlers: {} };
  node.key = want.key;
  return node;
}

function fits(node, want) {
  if (EMPTY.includes(want)) return node.nodeType === Node.COMMENT_NODE;
  if (typeof want !== 'object') return node.nodeType === Node.TEXT_NODE;
  return node.drawn !== undefined && node.key === want.key && node.localName === want.tag;
}

function fill(node, want) {
  if (EMPTY.includes(want)) return;
  if (typeof want !== 'object') {
    const text = visible(want, node.parentNode.localName === 'pre' ? HIDDEN_IN_OUTPUT : HIDDEN);
    if (node.data !== text) node.data = text;
    return;
  }
  const { attrs, handlers } = node.drawn;
  for (const name of new Set([...Object.keys(attrs), ...Object.keys(want.attrs)])) {
    const value = want.attrs[name];
    if (name === 'key' || attrs[name] === value) continue;
    if (name.startsWith('on')) {
      const type = name.slice(2);
      if (!(type in handlers)) node.addEventListener(type, (event) => handlers[type] && handlers[type](event));
      handlers[type] = value;
    } else if (EMPTY.includes(value)) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.drawn.attrs = want.attrs;
  patch(node, want.children);
}

function patch(parent, wanted) {
  const keys = new Set(wanted.map((want) => want?.key));
  const byKey = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.key === undefined) continue;
    if (keys.has(node.key)) byKey.set(node.key, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    let node = want?.key !== undefined ? byKey.get(want.key) : at;
    if (!node || !fits(node, want)) {
      node = create(want, parent);
      if (at && at.key === undefined && want?.key === undefined) {
        at.replaceWith(node);
        at = node;
      }
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    fill(node, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
