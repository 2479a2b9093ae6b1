"use strict";
// Clicking a heading, or its button, sorts the table by its column; clicking it again reverses the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-label", `sort by ${head.textContent}`);
    head.append(" ", button);
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const value = (text) => (text !== "" && !isNaN(text) ? Number(text) : null);
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [left, right] = [key(a), key(b)];
        const [x, y] = [value(left), value(right)];
        if (left === "" || right === "") return (left === "") - (right === "");
        const order = x !== null && y !== null ? x - y : left.localeCompare(right);
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
// A box of the tally shows only its claims in the ledger; pressed again, it shows all.
const boxes = [...document.querySelectorAll(".tally button")];
for (const box of boxes) {
  box.addEventListener("click", () => {
    const chosen = box.getAttribute("aria-pressed") === "true" ? null : box.dataset.verdict;
    boxes.forEach((one) => one.setAttribute("aria-pressed", one.dataset.verdict === chosen));
    const rows = [...document.querySelectorAll(".ledger tbody tr")];
    rows.forEach((row) => (row.hidden = chosen !== null && row.dataset.verdict !== chosen));
    const shown = rows.filter((row) => !row.hidden).length;
    const text = chosen === null ? "" : `Shown: ${shown} of ${rows.length} claims, ${chosen}.`;
    document.getElementById("filtered").textContent = text;
  });
}
// Copies a command; the second way is for browsers that refuse the first.
for (const button of document.querySelectorAll("[data-copy]")) {
  const name = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const area = document.createElement("textarea");
      area.value = button.dataset.copy;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => (button.textContent = name), 1500);
  });
}
