// Figures: a button a sampler shows and hides its lines.
for (const figure of document.querySelectorAll("figure")) {
  const lines = [...figure.querySelectorAll("g[data-name]")];
  const names = [...new Set(lines.map(line => line.dataset.name))];
  if (names.length < 2) continue;
  for (const name of names.reverse()) {
    const button = document.createElement("button");
    button.textContent = name;
    button.onclick = () => {
      const off = button.classList.toggle("off");
      for (const line of lines.filter(line => line.dataset.name === name))
        line.style.display = off ? "none" : "";
    };
    figure.prepend(button);
  }
}

// In print, tables of many columns are as wide as the page.
for (const table of document.querySelectorAll("table"))
  if (table.rows[0].cells.length > 5) table.classList.add("wide");
