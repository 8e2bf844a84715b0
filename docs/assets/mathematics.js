// Typesets what pymdownx.arithmatex has marked; equations in a table are set as large as displayed ones.
for (const place of document.querySelectorAll(".arithmatex")) {
  const tex = place.textContent.trim().slice(2, -2)
  const displayed = place.tagName === "DIV"
  const source = place.closest("td") ? "\\displaystyle " + tex : tex
  katex.render(source, place, { displayMode: displayed, throwOnError: false })
}
