// A picture and a sentence looked at together: a word lights up its places, a place its words.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes, listeners (`onclick`), custom properties (`--x`) and children. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name.startsWith('--')) made.style.setProperty(name, value);
    else if (name === 'class') made.className = value;
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function svg(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export const percent = (p) => (p >= 0.995 ? '> 99 %' : p < 0.005 ? '< 1 %' : `${Math.round(100 * p)} %`);

export function meter(share) {
  const bar = el('i');
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el('span', { class: 'meter', 'aria-hidden': 'true' }, bar);
}

function rect(box, name) {
  const [x1, y1, x2, y2] = box.map((side) => 1000 * Math.max(0, Math.min(1, side)));
  return svg('rect', { x: x1, y: y1, width: Math.max(x2 - x1, 1), height: Math.max(y2 - y1, 1), class: name });
}

function tag(text, box) {
  const made = el('span', {}, text);
  made.style.left = `${Math.min(100 * box[0], 82)}%`;
  made.style.top = `${Math.min(100 * box[1], 92)}%`;
  return made;
}

/** The stage: a picture on which heat and boxes are laid. */
export class Stage {
  constructor(source, alt) {
    this.picture = el('img', { src: source, alt, draggable: 'false' });
    this.heat = el('img', { class: 'heat', alt: '', hidden: true });
    this.layer = svg('svg', { viewBox: '0 0 1000 1000', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.tags = el('div', { class: 'tags', 'aria-hidden': 'true' });
    this.element = el('figure', { class: 'stage' }, this.picture, this.heat, this.layer, this.tags);
  }

  show(heat, boxes = [], labels = []) {
    this.element.classList.toggle('lit', Boolean(heat));
    this.heat.hidden = !heat;
    if (heat) this.heat.src = heat;
    this.layer.replaceChildren(...boxes.map(([box, name]) => rect(box, name)));
    this.tags.replaceChildren(...labels.map(([text, box]) => tag(text, box)));
  }

  at(event) {
    const frame = this.element.getBoundingClientRect();
    const inside = (value) => Math.max(0, Math.min(1, value));
    return [inside((event.clientX - frame.left) / frame.width), inside((event.clientY - frame.top) / frame.height)];
  }

  /** Drag a box over the picture; `done` is given it, or null when it was too small to be meant. */
  draws(moved, done) {
    let start = null;
    this.element.addEventListener('pointerdown', (event) => {
      if (event.pointerType === 'touch' && !event.isPrimary) return;
      event.preventDefault();
      start = this.at(event);
      this.element.setPointerCapture(event.pointerId);
    });
    const box = (event) => {
      const end = this.at(event);
      return [Math.min(start[0], end[0]), Math.min(start[1], end[1]), Math.max(start[0], end[0]), Math.max(start[1], end[1])];
    };
    this.element.addEventListener('pointermove', (event) => { if (start) moved(box(event)); });
    this.element.addEventListener('pointerup', (event) => {
      if (!start) return;
      const found = box(event);
      start = null;
      done(found[2] - found[0] > 0.03 && found[3] - found[1] > 0.03 ? found : null);
    });
    this.element.addEventListener('pointercancel', () => { start = null; });
  }
}

const inside = (box, x, y) => x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3];
const area = (box) => (box[2] - box[0]) * (box[3] - box[1]);
const joins = (word) => /^[^\p{L}\p{N}]/u.test(word) || /^(n't|'\w+)$/.test(word);

/** Which regions a word chose: at most three, each at least half as strong as the best. */
function chosen(weights) {
  const best = Math.max(...weights);
  if (!(best > 0)) return [];
  return weights.map((w, i) => [w, i]).filter(([w]) => w >= best / 2).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([, i]) => i);
}

/**
 * Picture and sentence side by side. `facts` is an explanation as the service sends it; `onRegion(box)` makes boxes drawn
 * on the picture, and the places of words, something to search by. `places` are shown for those of the words;
 * `names()` promises what the regions are called, or null.
 */
export function lookAt({ source, alt, facts, places: marked = facts.places, names = null, onRegion = null, more = null }) {
  const stage = new Stage(source, alt);
  const { words, boxes, weights } = facts;
  const peaks = weights.map((row) => Math.max(...row, 1e-9));
  let pinned = null; // a word's number
  let drawn = null; // a box
  let every = false; // whether all boxes are shown
  let labels = null; // what they are called, once that was asked

  const sentence = el('p', { class: 'sentence', role: 'group', 'aria-label': 'The sentence, word by word' });
  const shown = words.map((word, place) => {
    const colour = word.colour === null ? '' : ` c${word.colour}`;
    const state = !word.known ? ' missing' : word.content ? '' : ' small';
    const attributes = {
      class: `word${colour}${state}`, 'data-word': place, '--strength': word.strength ?? 0,
      title: word.known ? null : 'the model does not know this word',
    };
    if (!word.heat || !word.known) return el('span', attributes, word.text);
    return el('button', {
      ...attributes, type: 'button', 'aria-pressed': 'false',
      onpointerenter: (event) => { if (event.pointerType !== 'touch') light(place); },
      onpointerleave: () => light(pinned), onfocus: () => light(place), onblur: () => light(pinned),
      onclick: () => { pinned = pinned === place ? null : place; light(pinned); },
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const buttons = [...sentence.querySelectorAll('button')];
        buttons[buttons.indexOf(event.currentTarget) + step]?.focus();
      },
    }, word.text);
  });
  shown.forEach((part, place) => sentence.append(place && !joins(words[place].text) ? ' ' : '', part));

  const idle = !words.length ? 'Drag over the picture to choose a part.' : onRegion ? 'Point at a word, or at the picture; drag over it to choose a part.' : 'Point at a word, or at the picture.';
  const here = el('p', { class: 'here', role: 'status' }, idle);
  const reset = () => {
    const marks = marked.map((place) => [place.box, `c${place.colour}`]);
    const all = every ? boxes.map((box) => [box, 'all']) : [];
    const named = every && labels ? labels.map((text, i) => [text, boxes[i]]).filter(([text]) => text).slice(0, 40) : [];
    stage.show(null, [...all, ...(facts.fits ? marks : []), ...(drawn ? [[drawn, 'drawn']] : [])],
      [...named, ...(facts.fits ? marked.map((place) => [place.text, place.box]) : [])]);
  };
  function light(place) {
    shown.forEach((part, i) => {
      part.classList.toggle('on', i === place);
      part.classList.remove('near');
      if (part.tagName === 'BUTTON') part.setAttribute('aria-pressed', String(i === pinned));
    });
    if (place === null || !words[place].heat) { here.textContent = idle; reset(); return; }
    const tone = words[place].colour === null ? '' : `c${words[place].colour}`;
    const best = chosen(weights[place]);
    stage.show(words[place].heat, best.map((i) => [boxes[i], tone]), labels ? best.filter((i) => labels[i]).map((i) => [labels[i], boxes[i]]) : []);
    here.textContent = `“${words[place].text}” looks here${labels && best.length && labels[best[0]] ? `: ${labels[best[0]]}` : ''}`;
  }
  /** The other way round: the words that a region belongs to. */
  function words_at(x, y) {
    const under = boxes.map((box, i) => [area(box), i]).filter(([, i]) => inside(boxes[i], x, y)).sort((a, b) => a[0] - b[0]);
    if (!under.length) { light(pinned); return; }
    const region = under[0][1];
    const near = words.map((word, w) => (word.heat && word.known ? Math.max(...under.map(([, i]) => weights[w][i])) / peaks[w] : 0));
    shown.forEach((part, w) => {
      part.classList.remove('on');
      part.classList.toggle('near', near[w] > 0.35);
      part.style.setProperty('--near', near[w]);
    });
    stage.show(null, [[boxes[region], 'here'], ...(drawn ? [[drawn, 'drawn']] : [])], labels && labels[region] ? [[labels[region], boxes[region]]] : []);
    const said = words.filter((word, w) => near[w] > 0.35 && word.content).map((word) => word.text);
    here.textContent = said.length ? `here: ${said.join(', ')}` : 'no word looks here';
  }
  stage.element.addEventListener('pointermove', (event) => {
    if (event.pointerType !== 'touch' && event.buttons === 0) words_at(...stage.at(event));
  });
  stage.element.addEventListener('pointerleave', () => light(pinned));

  const search = onRegion && el('button', { class: 'plain', type: 'button', disabled: true, onclick: () => onRegion(drawn) }, 'Search by this part');
  const choose = (box, said) => {
    drawn = box;
    if (search) search.disabled = !box;
    pinned = null;
    light(null);
    if (box) here.textContent = said;
  };
  if (onRegion) {
    stage.draws((box) => { drawn = box; reset(); }, (box) => {
      if (box) { choose(box, 'a part of the picture is chosen'); return; }
      choose(null, '');
    });
  }
  const places = el('div', { class: 'places', role: 'group', 'aria-label': 'Places in the picture' }, facts.fits ? marked.map((place) => {
    const button = el('button', {
      type: 'button', class: `c${place.colour}`, 'aria-pressed': 'false',
      onpointerenter: () => stage.show(null, [[place.box, `c${place.colour}`]], [[place.text, place.box]]),
      onpointerleave: () => light(pinned),
      onclick: () => {
        const on = button.getAttribute('aria-pressed') !== 'true';
        places.querySelectorAll('button').forEach((other) => other.setAttribute('aria-pressed', 'false'));
        button.setAttribute('aria-pressed', String(on));
        choose(on ? place.box : null, `“${place.text}” is chosen`);
      },
    }, place.text);
    return button;
  }) : []);
  const likely = facts.probability === null ? '' : facts.generated ? '' : percent(facts.probability);
  const verdict = el('p', { class: `verdict${facts.fits ? '' : ' no'}` },
    likely ? el('b', {}, facts.fits ? `fits: ${likely}` : `probably does not fit: ${likely}`) : '',
    likely ? ' · ' : '', `${facts.generated ? 'log-probability' : 'score'} ${facts.score.toFixed(3)}`,
    facts.more ? ` · ${facts.more} more words are left out` : '');
  const largest = Math.max(...words.map((word) => Math.abs(word.score ?? 0)), 1e-9);
  const adds = words.some((word) => word.score !== null) && el('ul', { class: 'adds', 'aria-label': facts.generated ? 'How sure of each word' : 'What each word adds' },
    words.map((word) => word.heat && (word.content || !word.known) && el('li', { class: `${word.colour === null ? '' : `c${word.colour}`}${word.known ? '' : ' missing'}` },
      el('span', { class: 'w' }, word.text), meter(word.known ? Math.max(word.score ?? 0, 0) / largest : 0),
      el('span', { class: 'v' }, word.known ? (word.score ?? 0).toFixed(2) : 'unknown'))));
  const toggle = el('label', {}, el('input', { type: 'checkbox', onchange: async (event) => {
    every = event.target.checked;
    light(pinned);
    if (every && names && !labels) { labels = await names(); light(pinned); }
  } }), ' all regions');
  reset();
  const element = el('div', { class: 'look' }, stage.element,
    el('div', { class: 'reading' }, ...(words.length ? [sentence, verdict] : []), here, places, adds,
      el('div', { class: 'actions' }, search, boxes.length > 0 && toggle), more));
  return { element, stage };
}
