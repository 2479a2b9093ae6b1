// Tables of verdicts: a colour a verdict, and rows sorted by the column whose head is clicked.
const COLOURS = {"holds": "holds", "does not hold": "fails", "not decided": "open", "not run": "unrun"};

for (const table of document.querySelectorAll("table")) {
  for (const cell of table.querySelectorAll("td")) {
    const word = Object.keys(COLOURS).find(word => cell.textContent.trim().startsWith(word));
    if (word) cell.classList.add(COLOURS[word]);
  }
  table.querySelectorAll("th").forEach((head, column) => {
    head.title = "Sort";
    head.onclick = () => {
      const body = table.tBodies[0], up = head.dataset.up = head.dataset.up === "1" ? "" : "1";
      const text = row => row.cells[column].textContent.trim();
      const order = (a, b) => text(a).localeCompare(text(b), "en", {numeric: true});
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    };
  });
}
