// A tab for anything the service offers: a picture or video of yours, a text, and what a model makes of them.

import { el, lookAt, meter, percent, Stage, svg } from '/page/look.js';

const clock = (seconds) => `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, '0')}`;

export function taskView(task, { send, limits }) {
  const video = task.medium === 'video';
  let file = null;
  let shownUrl = null;
  const out = el('div', { 'aria-live': 'polite' });
  const preview = el('div');
  const run = el('button', { class: 'go', type: 'submit' }, task.verb[0].toUpperCase() + task.verb.slice(1));
  const said = el('p', { class: 'error', role: 'alert' });

  function take(given) {
    if (!given) return;
    said.textContent = '';
    if (given.size > limits.upload_bytes) {
      said.textContent = `This file has ${Math.ceil(given.size / 1e6)} MB; ${Math.floor(limits.upload_bytes / 1e6)} MB are taken at most.`;
      return;
    }
    file = given;
    if (shownUrl) URL.revokeObjectURL(shownUrl);
    shownUrl = URL.createObjectURL(given);
    preview.replaceChildren(
      video ? el('video', { src: shownUrl, muted: true, controls: true, 'aria-label': 'Your video' }) : el('img', { src: shownUrl, alt: 'Your picture' }),
      el('p', {}, given.name));
    drop.classList.add('has');
    out.replaceChildren();
  }

  const kinds = video ? 'video/*' : 'image/*';
  const input = (name, camera) => el('input', {
    id: name, class: 'sr', type: 'file', accept: kinds, capture: camera ? 'environment' : null,
    'aria-label': camera ? 'Use the camera' : `Choose a ${task.medium}`, onchange: (event) => take(event.target.files[0]),
  });
  const drop = task.medium !== 'none' && el('div', {
    class: 'drop',
    ondragover: (event) => { event.preventDefault(); drop.classList.add('over'); },
    ondragleave: () => drop.classList.remove('over'),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove('over'); take(event.dataTransfer.files[0]); },
  }, preview, el('p', {}, `Drop a ${task.medium} here${task.medium_optional ? ' (not always needed)' : ''}, or`),
  input('file', false), el('label', { class: 'plain', for: 'file' }, `Choose a ${task.medium}`),
  input('camera', true), el('label', { class: 'plain camera', for: 'camera' }, 'Camera'));
  const text = task.text && el('input', { id: 'text', name: 'text', type: 'text', maxlength: limits.text, placeholder: task.example, autocomplete: 'off' });
  const model = el('select', { id: 'model', 'aria-label': 'Model' }, task.models.map((name) => el('option', { value: name }, name)));

  async function submit(event) {
    event.preventDefault();
    said.textContent = '';
    if (!file && task.medium !== 'none' && !task.medium_optional) { said.textContent = `Choose a ${task.medium} first.`; return; }
    const form = new FormData();
    if (file) form.append('file', file);
    if (text) form.append('text', text.value);
    form.append('model', model.value);
    run.disabled = true;
    out.replaceChildren(el('p', {}, el('span', { class: 'spin' }), ' looking …'));
    try {
      const answer = await send(`/${task.verb}`, { method: 'POST', body: form });
      out.replaceChildren(outcome(task, answer, shownUrl));
    } catch (error) {
      out.replaceChildren();
      said.textContent = error.message;
    } finally {
      run.disabled = false;
    }
  }

  return el('form', { class: 'work', onsubmit: submit },
    el('h1', {}, task.does),
    drop,
    text && el('div', {}, el('label', { for: 'text', class: 'hint' }, task.text + (task.text_optional ? ' (may be left out)' : '')),
      el('div', { class: 'field' }, text, run)),
    el('p', { class: 'choices' }, el('label', {}, 'Model ', model), text ? null : run),
    said, out);
}

function outcome(task, answer, url) {
  const parts = [];
  let stage = null;
  let film = null;
  if (answer.explanation && answer.picture) {
    const boxed = answer.lines.filter((line) => line.boxes.length).slice(0, 7);
    const places = boxed.map((line, i) => ({ box: line.boxes[0], text: line.text, colour: i, words: [] }));
    const look = lookAt({ source: answer.picture, alt: 'Your picture', facts: answer.explanation, places: places.length ? places : undefined });
    stage = look.stage;
    parts.push(look.element);
  } else if (answer.picture) {
    stage = new Stage(answer.picture, 'Your picture');
    parts.push(stage.element);
  } else if (answer.seconds !== null && url) {
    film = el('video', { class: 'film', src: url, controls: true, muted: true, 'aria-label': 'Your video' });
    parts.push(film, timeline(answer));
  }
  const boxed = () => {
    if (!stage || answer.explanation) return;
    const boxes = answer.lines.slice(0, 12).flatMap((line, i) => line.boxes.map((box) => [box, `c${i % 7}`]));
    stage.show(null, boxes, answer.lines.slice(0, 12).filter((line) => line.boxes.length).map((line) => [line.text, line.boxes[0]]));
  };
  const best = Math.max(...answer.lines.map((line) => Math.abs(line.score ?? 0)), 1e-9);
  const list = el('ol', { class: 'answers', 'aria-label': 'What the model says' }, answer.lines.map((line, i) => {
    const name = line.span ? `${clock(line.span[0])} to ${clock(line.span[1])}` : line.text || '–';
    const value = line.probability !== null ? percent(line.probability) : line.score !== null ? line.score.toFixed(2) : '';
    const lit = answer.explanation ? {} : { onpointerenter: () => stage?.show(null, line.boxes.map((box) => [box, `c${i % 7}`]), [[line.text, line.boxes[0]]]), onpointerleave: boxed };
    const saying = film && line.span
      ? el('button', { class: 'said', type: 'button', onclick: () => { film.currentTime = line.span[0]; film.play(); } }, `▶ ${name}`)
      : el('span', { class: 'said' }, name);
    return el('li', line.boxes.length && stage ? lit : {},
      el('div', { class: 'row' }, saying, el('span', { class: 'n' }, value)),
      meter(line.probability ?? (line.score > 0 ? line.score / best : 0)),
      line.details.length ? el('ol', {}, line.details.map((step) => el('li', {}, step))) : null);
  }));
  boxed();
  if (!answer.lines.length) parts.push(el('p', { class: 'empty' }, 'The model found nothing.'));
  return el('div', {}, list, ...parts);
}

function timeline(answer) {
  const wide = 1000;
  const drawn = svg('svg', { class: 'time', viewBox: `0 0 ${wide} 64`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'How well each piece of the video fits' });
  for (const line of answer.lines) {
    if (!line.span) continue;
    const [start, end] = line.span.map((at) => (wide * at) / answer.seconds);
    drawn.append(svg('rect', { x: start, y: 0, width: Math.max(end - start, 2), height: 64 }));
  }
  const low = Math.min(...answer.curve);
  const high = Math.max(...answer.curve, low + 1e-9);
  const points = answer.curve.map((value, i) => `${(wide * (i + 0.5)) / answer.curve.length},${58 - (52 * (value - low)) / (high - low)}`);
  if (points.length > 1) drawn.append(svg('path', { d: `M${points.join('L')}` }));
  return drawn;
}
