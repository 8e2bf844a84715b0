// Names, alternatives, headings and contrast: what is wrong with the page that is shown.
() => {
  const faults = [];
  const shown = (part) => part.getClientRects().length && getComputedStyle(part).visibility !== 'hidden';
  const name = (part) => part.getAttribute('aria-label') || part.textContent.trim() || part.title
    || [...(part.labels ?? [])].map((label) => label.textContent.trim()).join(' ');
  for (const part of document.querySelectorAll('a, button, input, select, summary, dialog[open], nav, [role=slider]'))
    if (shown(part) && !name(part)) faults.push('no name: ' + part.outerHTML.slice(0, 80));
  for (const part of document.querySelectorAll('img'))
    if (!part.hasAttribute('alt')) faults.push('no alt: ' + part.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll('[id]')].map((part) => part.id);
  if (new Set(ids).size < ids.length) faults.push('an id is there twice');
  if (document.querySelectorAll('h1').length !== 1 && ![...document.querySelectorAll('h1')].filter(shown).length) faults.push('no h1');
  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (part) => { for (let at = part; at; at = at.parentElement) { const c = rgb(getComputedStyle(at).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c; if (c[3] > 0) return null; } return [255, 255, 255]; };
  const texts = document.createTreeWalker(document.querySelector('dialog[open]') ?? document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const part = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(part) || part.closest('.sr, .skip, .tags, script, noscript, option, :disabled')) continue;
    const ground = behind(part);
    if (!ground) continue;
    const [one, two] = [light(rgb(getComputedStyle(part).color)), light(ground)].sort((a, b) => b - a);
    const large = parseFloat(getComputedStyle(part).fontSize) >= 24;
    if ((one + .05) / (two + .05) < (large ? 3 : 4.5)) faults.push('faint: ' + texts.currentNode.data.trim().slice(0, 40));
  }
  return faults;
}
