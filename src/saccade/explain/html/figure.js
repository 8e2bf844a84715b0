document.querySelectorAll('.match').forEach(function (match) {
  var light = match.querySelector('.light'), boxes = match.querySelector('.boxes');
  var words = Array.from(match.querySelectorAll('.word')), tiles = Array.from(match.querySelectorAll('.tile'));
  var steps = Array.from(match.querySelectorAll('.step'));
  var together = tiles.map(function (tile) { return tile.style.getPropertyValue('--light'); });
  var pinned = null;
  function show(word) {
    match.classList.toggle('lit', word !== null);
    words.concat(tiles).forEach(function (part) { part.classList.toggle('on', part.dataset.word === word); });
    words.forEach(function (part) { part.setAttribute('aria-pressed', part.dataset.word === pinned); });
    boxes.replaceChildren();
    tiles.forEach(function (tile) {
      if (tile.dataset.word !== word) return;
      light.style.backgroundImage = tile.style.getPropertyValue('--light');
      var drawn = tile.querySelector('svg:not([hidden])').cloneNode(true);
      boxes.setAttribute('class', 'boxes ' + (tile.className.match(/c\d/) || ['']).join(''));
      while (drawn.firstChild) boxes.appendChild(drawn.firstChild);
    });
  }
  words.concat(tiles).forEach(function (part) {
    part.addEventListener('pointerenter', function () { show(part.dataset.word); });
    part.addEventListener('pointerleave', function () { show(pinned); });
    part.addEventListener('click', function () {
      pinned = pinned === part.dataset.word ? null : part.dataset.word;
      show(pinned);
    });
  });
  steps.forEach(function (button) {
    button.parentElement.hidden = false;
    button.addEventListener('click', function () {
      var step = button.dataset.step;
      steps.forEach(function (other) { other.setAttribute('aria-pressed', other === button); });
      tiles.forEach(function (tile, i) {
        var light = step === '0' ? together[i] : tile.style.getPropertyValue('--light' + step);
        tile.style.setProperty('--light', light);
        tile.querySelectorAll('svg').forEach(function (boxes) {
          boxes.toggleAttribute('hidden', boxes.dataset.step !== step);
        });
      });
      show(pinned);
    });
  });
  words.forEach(function (part, i) {
    part.addEventListener('focus', function () { if (part.matches(':focus-visible')) show(part.dataset.word); });
    part.addEventListener('blur', function () { show(pinned); });
    part.addEventListener('keydown', function (event) {
      var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (step && words[i + step]) { event.preventDefault(); words[i + step].focus(); }
      if (event.key === 'Escape') { pinned = null; show(null); }
    });
  });
});
