// The page: what is asked stands in the address, so that a link leads to the same view.

import { el, lookAt, meter, percent, svg } from '/page/look.js';
import { taskView } from '/page/task.js';

const TOP = 48; // results asked for
const BINS = 28;
const $ = (id) => document.getElementById(id);
const state = { tab: '', q: '', index: '', second: '', where: '', facets: [], min: null, like: '', region: '', open: '' };
let offered = null;
let upload = null; // a picture of the user's, searched by; it is in no link
let columns = []; // what was found, for each index

class Problem extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

async function send(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Problem(0, 'The service does not answer. Is it still running?');
  }
  if (answer.status === 401 && address !== '/login') {
    await login();
    return send(address, options);
  }
  if (answer.status === 204) return null;
  const facts = await answer.json().catch(() => ({ error: `The service said something strange (${answer.status}).` }));
  if (!answer.ok) throw new Problem(answer.status, facts.error || `The service refused (${answer.status}).`);
  return facts;
}

let entering = null;
function login() {
  entering ??= new Promise((entered) => {
    const dialog = $('login');
    const form = dialog.querySelector('form');
    form.onsubmit = async (event) => {
      event.preventDefault();
      try {
        await send('/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ key: $('key').value }) });
        dialog.close();
        entering = null;
        entered();
      } catch (error) { $('login-error').textContent = error.message; }
    };
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
  });
  return entering;
}

function complain(error) {
  $('alert').replaceChildren(error ? el('p', { class: 'notice bad' }, error.message || String(error)) : '');
}

// --- what stands in the address ---
function readAddress() {
  const given = new URLSearchParams(location.search);
  for (const name of Object.keys(state)) {
    if (name === 'facets') state.facets = given.getAll('f').map((one) => one.split(/:(.*)/s).slice(0, 2));
    else if (name === 'min') state.min = given.has('min') ? Number(given.get('min')) : null;
    else state[name] = given.get(name) ?? '';
  }
}

function writeAddress(push = true) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (name === 'facets') value.forEach(([column, one]) => said.append('f', `${column}:${one}`));
    else if (value !== '' && value !== null) said.set(name, value);
  }
  const address = said.size ? `/?${said}` : '/';
  if (push) history.pushState(null, '', address); else history.replaceState(null, '', address);
}

function go(changes, push = true) {
  Object.assign(state, changes);
  writeAddress(push);
  return show();
}

/** `two dogs -snow "red ball"` → a text, phrases that count by themselves, and what must not be there. */
export function parse(asked) {
  const found = { text: [], plus: [], minus: [] };
  for (const [, dash, phrase, word] of asked.matchAll(/(^-|(?<=\s)-)?(?:"([^"]*)"?|(\S+))/g)) {
    const term = (phrase ?? word).trim();
    if (!term) continue;
    if (dash) found.minus.push(term);
    else if (phrase !== undefined) found.plus.push(term);
    else found.text.push(term);
  }
  return { text: found.text.join(' '), plus: found.plus, minus: found.minus };
}
const explained = () => { const asked = parse(state.q); return [asked.text, ...asked.plus].filter(Boolean).join(' '); };

/** The filters and the condition as one, for the columns of an index. */
function condition(name) {
  const kinds = about(name)?.columns ?? {};
  const quote = (value) => `'${value.replaceAll("'", "''")}'`;
  const one = {
    number: (column, values) => `${column} IN (${values.map(Number).filter(Number.isFinite).join(', ') || 'NULL'})`,
    list: (column, values) => `(${values.map((value) => `array_has(${column}, ${quote(value)})`).join(' OR ')})`,
  };
  const text = (column, values) => `${column} IN (${values.map(quote).join(', ')})`;
  const by = new Map();
  for (const [column, value] of state.facets) by.set(column, [...(by.get(column) ?? []), value]);
  const parts = [...by].map(([column, values]) => (one[kinds[column]] ?? text)(column, values));
  if (state.where) parts.push(parts.length ? `(${state.where})` : state.where);
  return parts.join(' AND ');
}

// --- searching ---
async function search() {
  const asked = parse(state.q);
  const names = [state.index || offered.indices[0].name, state.second].filter(Boolean);
  $('columns').classList.toggle('two', names.length > 1);
  if (!state.q && !state.like && !upload) { columns = []; welcome(); return; }
  $('columns').classList.add('busy');
  $('columns').setAttribute('aria-busy', 'true');
  try {
    columns = await Promise.all(names.map((name) => one(name, asked)));
    complain(null);
    $('columns').replaceChildren(...columns.map(columnView));
    $('status').textContent = columns.map((found) => `${found.hits.length} pictures by ${found.model}`).join('; ');
    Promise.all(columns.map(foldCopies)).then(() => $('columns').setAttribute('aria-busy', 'false'));
  } catch (error) {
    columns = [];
    $('columns').replaceChildren();
    $('columns').setAttribute('aria-busy', 'false');
    complain(error);
  } finally {
    $('columns').classList.remove('busy');
  }
}

async function one(name, asked) {
  const words = { index: name, text: asked.text, where: condition(name), top: TOP, region: state.like || upload ? state.region : '' };
  if (upload) {
    const form = new FormData();
    form.append('file', upload.file);
    for (const [key, value] of Object.entries(words)) form.append(key, value);
    asked.plus.forEach((term) => form.append('plus', term));
    asked.minus.forEach((term) => form.append('minus', term));
    return send('/search', { method: 'POST', body: form });
  }
  const given = new URLSearchParams(Object.entries({ ...words, like: state.like }).filter(([, value]) => value !== ''));
  asked.plus.forEach((term) => given.append('plus', term));
  asked.minus.forEach((term) => given.append('minus', term));
  return send(`/search?${given}`);
}

function welcome() {
  const first = offered.indices.find((index) => index.name === state.index) ?? offered.indices[0];
  $('columns').replaceChildren(el('p', { class: 'empty' }, `${first.pictures.toLocaleString('en')} pictures. Say what you are looking for.`));
}

const about = (name) => offered.indices.find((index) => index.name === name);
const thumbnail = (index, id) => `/thumbnails/${encodeURIComponent(index)}/${id.split('/').map(encodeURIComponent).join('/')}`;
const picture = (index, id) => `/pictures/${encodeURIComponent(index)}/${id.split('/').map(encodeURIComponent).join('/')}`;

function columnView(found) {
  const milliseconds = 1000 * Object.values(found.seconds).reduce((sum, value) => sum + value, 0);
  // the score at which a picture fits as likely as not, where scores are those of sentences
  const line = found.hits[0]?.probability === null ? null : about(found.index)?.line ?? null;
  const list = el('ul', { class: 'grid', 'aria-label': `Pictures found by ${found.model}` });
  const stated = [`${found.hits.length} of ${found.total.toLocaleString('en')} pictures`, `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`];
  const measured = about(found.index)?.recall;
  if (found.exact) stated.push('every picture scored');
  else if (measured) stated.push(`two stages find ${percent(measured.recall)} of the exact best ${measured.top}`);
  if (found.unknown.length) stated.push(`unknown: ${found.unknown.join(', ')}`);
  const section = el('section', { class: 'column', 'data-index': found.index, 'aria-label': `By ${found.model}` },
    el('div', { class: 'head' }, el('div', {}, el('h2', {}, found.model), el('p', { class: 'facts' }, stated.join(' · '))),
      found.hits.length > 1 ? gate(found, line, () => fill(found, list, line)) : null),
    !found.fits && found.hits.length && state.q ? el('p', { class: 'notice bad' }, `Probably nothing here fits “${state.q}”. These come nearest.`) : null,
    found.hits.length ? list : el('p', { class: 'empty' }, 'No picture passes these filters.'));
  found.list = list;
  found.line = line;
  fill(found, list, line);
  return section;
}

/** The histogram of scores, a handle for the least score that is shown, and the line of likelihood. */
function gate(found, line, changed) {
  const scores = found.hits.map((hit) => hit.score);
  const calibrated = line !== null;
  const low = Math.min(...scores, calibrated ? line : Infinity);
  const high = Math.max(...scores, calibrated ? line : -Infinity) + 1e-9;
  const counts = new Array(BINS).fill(0);
  scores.forEach((score) => { counts[Math.min(BINS - 1, Math.floor((BINS * (score - low)) / (high - low)))] += 1; });
  const drawing = svg('svg', { viewBox: `0 0 ${BINS} 46`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'How many pictures have which score' });
  const bars = counts.map((count, i) => svg('rect', { x: i + 0.08, width: 0.84, y: 46 - (44 * count) / Math.max(...counts), height: (44 * count) / Math.max(...counts) }));
  drawing.append(...bars);
  if (calibrated) {
    const x = (BINS * (line - low)) / (high - low);
    drawing.append(svg('line', { x1: x, x2: x, y1: -2, y2: 46 }));
  }
  const said = el('span');
  const slider = el('input', { type: 'range', min: 0, max: 1000, step: 1, 'aria-label': 'Least score shown' });
  const at = () => low + ((high - low) * slider.value) / 1000;
  const tell = () => {
    const least = state.min === null ? low : state.min;
    bars.forEach((bar, i) => bar.classList.toggle('in', low + ((high - low) * (i + 1)) / BINS > least));
    const passing = found.hits.filter((hit) => hit.score >= least).length;
    said.textContent = state.min === null ? 'all are shown' : `score ≥ ${least.toFixed(3)}: ${passing} shown`;
    slider.setAttribute('aria-valuetext', said.textContent);
  };
  slider.value = state.min === null ? 0 : Math.round((1000 * (state.min - low)) / (high - low));
  slider.addEventListener('input', () => {
    state.min = Number(slider.value) === 0 ? null : Number(at().toFixed(4));
    writeAddress(false);
    tell();
    changed();
  });
  tell();
  return el('div', { class: 'gate' }, drawing, slider,
    el('div', { class: 'read' }, said, calibrated ? el('b', {}, '┆ left of it, probably nothing fits') : el('span', {}, state.q ? 'not calibrated: no line' : '')));
}

function fill(found, list, line) {
  const shown = found.hits.filter((hit) => state.min === null || hit.score >= state.min);
  const folded = new Map(); // the first of a group of copies → the others
  for (const group of found.groups ?? []) {
    const here = group.map((id) => shown.find((hit) => hit.id === id)).filter(Boolean).sort((a, b) => b.score - a.score);
    if (here.length > 1) folded.set(here[0].id, here.slice(1));
  }
  const hidden = new Set([...folded].filter(([id]) => !found.unfolded?.has(id)).flatMap(([, rest]) => rest.map((hit) => hit.id)));
  const best = Math.max(...shown.map((hit) => hit.score), 1e-9);
  const parts = [];
  const source = state.like && (found.groups ?? []).find((group) => group.includes(state.like));
  let told = false;
  let copied = false;
  for (const hit of shown) {
    const isCopy = Boolean(source) && source.includes(hit.id);
    if (source && isCopy && !copied) { parts.push(el('li', { class: 'divider calm' }, 'The picture and its copies')); copied = true; }
    if (source && !isCopy && copied) { parts.push(el('li', { class: 'divider calm' }, 'Merely similar')); copied = false; }
    const below = hit.probability !== null && hit.probability < 0.5;
    if (below && !told && parts.length && state.q) { parts.push(el('li', { class: 'divider' }, 'Below here, probably nothing fits')); }
    told ||= below;
    if (!hidden.has(hit.id) || isCopy) parts.push(card(found, hit, best, below, isCopy ? [] : folded.get(hit.id) ?? []));
  }
  list.replaceChildren(...parts);
  if (!parts.length) list.append(el('li', { class: 'divider calm' }, 'Nothing reaches this score'));
}

function card(found, hit, best, below, rest) {
  const likely = hit.probability === null ? hit.score.toFixed(3) : percent(hit.probability);
  const open = found.unfolded?.has(hit.id);
  return el('li', { class: `card${below ? ' below' : ''}`, 'data-id': hit.id },
    el('button', { class: 'open', type: 'button', title: hit.name, 'aria-label': `${likely} ${hit.name}, score ${hit.score.toFixed(3)}`, onclick: () => go({ open: `${found.index}/${hit.id}` }) },
      el('span', { class: 'shot' }, el('img', { src: thumbnail(found.index, hit.id), alt: '', loading: 'lazy', decoding: 'async' })),
      el('span', { class: 'line' }, el('span', { class: 'chance' }, likely), el('span', { class: 'name' }, hit.name)),
      meter(hit.probability ?? hit.score / best)),
    rest.length ? el('button', {
      class: 'badge', type: 'button', 'aria-expanded': String(Boolean(open)),
      onclick: () => { found.unfolded ??= new Set(); if (open) found.unfolded.delete(hit.id); else found.unfolded.add(hit.id); fill(found, found.list, found.line); },
    }, open ? 'fold' : `+${rest.length} ${rest.length > 1 ? 'copies' : 'copy'}`) : null);
}

/** Copies are told from what is merely similar, once the results are there. */
async function foldCopies(found) {
  const ids = [...new Set([...(state.like ? [state.like] : []), ...found.hits.map((hit) => hit.id)])];
  if (ids.length < 2) return;
  try {
    const told = await send('/copies', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ index: found.index, ids }) });
    found.groups = told.groups;
    if (told.groups.length) fill(found, found.list, found.line);
  } catch (error) { complain(error); }
}

// --- one picture ---
const UNSAID = { picture: null, words: [], boxes: [], weights: [], places: [], score: 0, probability: null, fits: true, generated: false, more: 0 };
const sides = (box) => box.map((side) => side.toFixed(3)).join(',');

/** A part of the picture that is searched by: of one of the index on its own page, of an upload here. */
function choosePart() {
  if (!upload) { go({ open: `${state.index || offered.indices[0].name}/${state.like}` }); return; }
  const dialog = $('detail');
  const look = lookAt({ source: upload.url, alt: upload.file.name, facts: UNSAID, onRegion: (box) => go({ region: sides(box), min: null }) });
  dialog.onclose = dialog.onkeydown = null;
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  dialog.replaceChildren(el('div', { class: 'sheet' },
    el('div', { class: 'bar' }, el('h2', {}, upload.file.name),
      el('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, '✕')), look.element));
  dialog.showModal();
}

async function detail() {
  const dialog = $('detail');
  if (!state.open) { if (dialog.open) dialog.close(); return; }
  const [, index, id] = state.open.match(/^([^/]*)\/(.*)$/s) ?? [];
  const found = columns.find((column) => column.index === index);
  const place = found ? found.hits.findIndex((hit) => hit.id === id) : -1;
  const hit = place < 0 ? null : found.hits[place];
  const name = hit?.name ?? id;
  const step = (by) => { const next = found?.hits[place + by]; if (next) go({ open: `${index}/${next.id}` }, false); };
  dialog.onkeydown = (event) => {
    if (event.target.matches('input')) return;
    if (event.key === 'ArrowRight') step(1);
    if (event.key === 'ArrowLeft') step(-1);
  };
  dialog.onclose = () => { if (state.open) go({ open: '' }); };
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  const body = el('div', {}, el('p', {}, el('span', { class: 'spin' }), ' looking …'));
  dialog.replaceChildren(el('div', { class: 'sheet' },
    el('div', { class: 'bar' }, el('h2', {}, name),
      el('button', { class: 'quiet', type: 'button', 'aria-label': 'Previous picture', disabled: place < 1, onclick: () => step(-1) }, '←'),
      el('button', { class: 'quiet', type: 'button', 'aria-label': 'Next picture', disabled: !found || place + 1 >= found.hits.length, onclick: () => step(1) }, '→'),
      el('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, '✕')),
    body));
  if (!dialog.open) dialog.showModal();
  const opened = state.open;
  const like = (region) => go({ q: '', open: '', like: id, index, region: region ? sides(region) : '', min: null });
  const more = el('div', {}, el('div', { class: 'actions' },
    el('button', { class: 'plain', type: 'button', onclick: () => like(null) }, 'Similar pictures'),
    el('button', { class: 'plain', type: 'button', onclick: copyLink }, 'Copy a link')),
  hit && el('dl', { class: 'meta' }, metadata(hit.metadata).flatMap(([key, value]) => [el('dt', {}, key), el('dd', {}, value)])));
  const names = () => send(`/regions?${new URLSearchParams({ index, id })}`).then((told) => told.labels, () => null);
  const text = explained();
  try {
    const facts = text
      ? await send(`/explain?${new URLSearchParams({ index, id, text })}`)
      : { ...UNSAID, score: hit?.score ?? 0 };
    if (state.open !== opened) return;
    const look = lookAt({ source: facts.picture ?? picture(index, id), alt: name, facts, names, onRegion: facts.picture ? null : like, more });
    look.stage.picture.addEventListener('error', () => { // the file has changed or gone: the index has kept a small picture
      look.stage.picture.src = thumbnail(index, id);
      body.append(el('p', { class: 'notice' }, 'The file has changed or gone since it was indexed: this is its thumbnail.'));
    }, { once: true });
    body.replaceChildren(look.element);
  } catch (error) {
    if (state.open !== opened) return;
    body.replaceChildren(el('p', { class: 'notice bad' }, error.message), more);
  }
}

/** What is worth reading of a picture's columns. */
function metadata(columns) {
  const told = { ...columns };
  if (told.width) told.pixels = `${told.width} × ${told.height}`;
  if (told.size) told.file = told.size < 1e6 ? `${Math.ceil(told.size / 1e3)} kB` : `${(told.size / 1e6).toFixed(1)} MB`;
  for (const name of ['width', 'height', 'size', 'regions', 'year', 'month']) delete told[name];
  if (Array.isArray(told.labels)) told.labels = [...new Set(told.labels)].slice(0, 24).join(', ');
  return Object.entries(told).filter(([, value]) => value !== null && String(value) !== '').map(([name, value]) => [name, String(value)]);
}

async function copyLink(event) {
  const button = event.currentTarget;
  try { await navigator.clipboard.writeText(location.href); button.textContent = 'Copied'; } catch { button.textContent = location.href; }
}

// --- filters ---
const facetsOf = new Map();
async function facets() {
  const name = state.index || offered.indices[0].name;
  if (!facetsOf.has(name)) {
    try { facetsOf.set(name, (await send(`/facets?index=${encodeURIComponent(name)}`)).columns); } catch (error) { complain(error); return; }
  }
  const on = (column, value) => state.facets.some(([c, v]) => c === column && v === value);
  const opened = new Set([...$('facets').querySelectorAll('details[open]')].map((part) => part.dataset.column));
  $('facets').replaceChildren(...Object.entries(facetsOf.get(name)).map(([column, values]) => {
    const count = state.facets.filter(([c]) => c === column).length;
    return el('details', { 'data-column': column, open: opened.has(column) },
      el('summary', { class: count ? 'on' : '' }, count ? `${column} · ${count}` : column),
      el('div', { class: 'pop' }, Object.entries(values).map(([value, number]) => el('label', {},
        el('input', { type: 'checkbox', checked: on(column, value), onchange: (event) => {
          const others = state.facets.filter(([c, v]) => !(c === column && v === value));
          go({ facets: event.target.checked ? [...others, [column, value]] : others });
        } }), el('span', {}, value), el('span', { class: 'n', 'aria-label': `${number} pictures` }, number)))));
  }));
}

function likeChip() {
  const chip = $('like');
  chip.hidden = !state.like && !upload;
  if (chip.hidden) return;
  const index = state.index || offered.indices[0].name;
  const shown = el('button', { class: 'crop', type: 'button', 'aria-label': 'Choose a part of the picture', onclick: choosePart }, el('img', { src: upload ? upload.url : thumbnail(index, state.like), alt: '' }));
  if (state.region) {
    const [x1, y1, x2, y2] = state.region.split(',').map(Number);
    const frame = el('i');
    Object.assign(frame.style, { left: `${100 * x1}%`, top: `${100 * y1}%`, width: `${100 * (x2 - x1)}%`, height: `${100 * (y2 - y1)}%` });
    shown.append(frame);
  }
  chip.replaceChildren(shown, el('span', {}, state.region ? 'like this part of ' : 'like ', upload ? upload.file.name : state.like),
    el('button', { class: 'plain', type: 'button', onclick: () => { upload = null; go({ like: '', region: '' }); } }, 'Leave out'));
}

// --- the whole ---
let shownSearch = '';
async function show() {
  if (!offered) return; // not known yet: what is asked meanwhile stands in `state`
  const tabs = [...(offered.indices.length ? [{ verb: '', title: 'Search' }] : []), ...offered.tasks];
  const tab = tabs.find((one) => one.verb === state.tab) ?? tabs[0];
  $('tabs').replaceChildren(...tabs.map((one) => el('a', {
    href: one.verb ? `/?tab=${one.verb}` : '/', 'aria-current': one === tab ? 'page' : null,
    onclick: (event) => { event.preventDefault(); go({ tab: one.verb, open: '' }); },
  }, one.title ?? one.verb[0].toUpperCase() + one.verb.slice(1))));
  const searching = tab?.verb === '';
  $('search').hidden = !searching;
  $('task').hidden = searching || !tab;
  document.title = `${searching ? state.q || 'Search' : tab?.verb ?? 'Nothing offered'} · Saccade`;
  if (!searching) {
    if (tab && $('task').dataset.verb !== tab.verb) {
      $('task').dataset.verb = tab.verb;
      $('task').replaceChildren(taskView(tab, { send, limits: offered.limits }));
    }
    return;
  }
  $('q').value = state.q;
  $('where').value = state.where;
  $('index').value = state.index || offered.indices[0].name;
  $('second').value = state.second;
  likeChip();
  facets();
  const wanted = JSON.stringify([state.q, state.index, state.second, state.facets, state.where, state.like, state.region, upload?.url]);
  if (wanted !== shownSearch) { shownSearch = wanted; await search(); }
  await detail();
}

const THEMES = { '': ['◐', 'as the system'], light: ['☀', 'light'], dark: ['☾', 'dark'] };
function theme(next) {
  if (next !== undefined) { try { localStorage.setItem('theme', next); } catch { /* private windows keep nothing */ } }
  let chosen = '';
  try { chosen = localStorage.getItem('theme') ?? ''; } catch { /* as the system */ }
  chosen = next ?? (chosen in THEMES ? chosen : '');
  if (chosen) document.documentElement.dataset.theme = chosen; else delete document.documentElement.dataset.theme;
  $('theme').textContent = THEMES[chosen][0];
  $('theme').setAttribute('aria-label', `Colours: ${THEMES[chosen][1]}`);
  $('theme').onclick = () => { const all = Object.keys(THEMES); theme(all[(all.indexOf(chosen) + 1) % all.length]); };
}

function listen() {
  $('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    shownSearch = '';
    go({ q: $('q').value.trim(), where: $('where').value.trim(), min: null, open: '' });
  });
  $('index').addEventListener('change', (event) => go({ index: event.target.value, min: null }));
  $('second').addEventListener('change', (event) => go({ second: event.target.value, min: null }));
  $('byfile').addEventListener('change', (event) => {
    const file = event.target.files[0];
    if (!file) return;
    upload = { file, url: URL.createObjectURL(file) };
    event.target.value = '';
    go({ q: '', like: '', region: '', min: null, open: '' });
  });
  window.addEventListener('popstate', () => { readAddress(); show(); });
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && !event.target.matches('input, textarea, select')) { event.preventDefault(); $('q').focus(); }
    if (!event.target.matches?.('.card > .open')) return;
    const cards = [...event.target.closest('.grid').querySelectorAll('.card > .open')];
    const wide = cards.filter((other) => other.offsetTop === cards[0].offsetTop).length || 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
    const next = by && cards[cards.indexOf(event.target) + by];
    if (next) { event.preventDefault(); next.focus(); }
  });
  document.addEventListener('click', (event) => {
    document.querySelectorAll('details[open]').forEach((part) => { if (!part.contains(event.target)) part.open = false; });
  });
}

theme();
readAddress();
listen();
try {
  offered = await send('/models');
  $('index').append(...offered.indices.map((index) => el('option', { value: index.name }, index.name)));
  $('second').append(el('option', { value: '' }, 'nothing'), ...offered.indices.map((index) => el('option', { value: index.name }, index.name)));
  $('beside').hidden = offered.indices.length < 2;
  await show();
} catch (error) { complain(error); }
