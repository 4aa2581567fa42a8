"use strict";
// Sorts the table by a column, and shows only the rows that contain a text.
const body = document.querySelector("tbody");
const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
document.querySelectorAll("th").forEach((head, column) => {
  head.addEventListener("click", () => {
    const up = head.ariaSort === "descending";
    document.querySelectorAll("th").forEach((other) => { other.ariaSort = null; });
    head.ariaSort = up ? "ascending" : "descending";
    const order = (a, b) => value(a, column).localeCompare(value(b, column), "en", { numeric: true });
    const rows = [...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
    body.append(...rows);
  });
});
document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  let matches = 0;
  for (const row of body.rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    matches += row.hidden ? 0 : 1;
  }
  document.getElementById("matches").textContent = wanted ? `${matches} of ${body.rows.length}` : "";
});
