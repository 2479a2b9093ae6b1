"use strict";
// Clicking a heading sorts the table by its column; clicking it again reverses the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
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
