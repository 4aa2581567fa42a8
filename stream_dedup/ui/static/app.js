// Refreshes what is shown, keeps the filters of a tab, turns pages, and draws the chart.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const facts = document.getElementById("facts");
  const page = document.getElementById("page");

  // ---------------------------------------------------------------- filters
  if (form) {
    const key = "filters of " + form.getAttribute("action");
    const fields = () => [...form.elements].filter((each) => each.name && each.name !== "seen_list");
    const keep = () => sessionStorage.setItem(key,
      JSON.stringify(Object.fromEntries(fields().map((each) => [each.name, each.value]))));
    // Levels and groups come with the list: some are known only once more was read.
    const offer = () => {
      for (const select of form.querySelectorAll("select[data-choices]")) {
        const known = new Set([...select.options].map((each) => each.value));
        for (const each of document.getElementById(select.dataset.choices).options)
          if (!known.has(each.value)) select.append(new Option(each.value));
        select.parentNode.hidden = select.options.length < 2;
      }
    };
    offer();
    document.body.addEventListener("htmx:afterSettle", offer);
    let kept = {};
    try { kept = JSON.parse(sessionStorage.getItem(key)) || {}; } catch { /* another version's */ }
    let changed = false;
    for (const each of fields()) {
      const value = kept[each.name];
      if (typeof value !== "string" || value === each.value) continue;
      const before = each.value;
      each.value = value;
      if (each.value !== value) each.value = before; // no longer to choose from
      else changed = true;
    }
    const first = () => { page.value = "1"; keep(); };
    form.addEventListener("input", first);
    form.addEventListener("change", (event) => { if (event.target.id !== "page") first(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    list.addEventListener("click", (event) => {
      const to = event.target.dataset && event.target.dataset.page;
      if (!to) return;
      page.value = to;
      keep();
      htmx.trigger(list, "refresh");
    });
    if (changed) window.addEventListener("load", () => htmx.trigger(list, "refresh"));
  }

  // ---------------------------------------------------------------- two of the list
  // What is chosen stays chosen when the list is renewed.
  const two = document.getElementById("two");
  if (two) {
    const chosen = new Set();
    const boxes = () => list.querySelectorAll("input[name=id]");
    const show = () => {
      for (const each of boxes()) {
        each.checked = chosen.has(each.value);
        each.disabled = !each.checked && chosen.size >= 2;
      }
      two.querySelector("button").disabled = chosen.size !== 2;
      document.getElementById("chosen").textContent = chosen.size === 2 ? ""
        : chosen.size ? "Choose another one." : "Choose two patterns of the list.";
    };
    list.addEventListener("change", (event) => {
      const { name, value, checked } = event.target;
      if (name !== "id") return;
      if (checked) chosen.add(value); else chosen.delete(value);
      show();
    });
    two.addEventListener("submit", (event) => { // also those that are on another page of the list
      event.preventDefault();
      location.assign(`${two.action}?${[...chosen].map((id) => `id=${id}`).join("&")}`);
    });
    document.body.addEventListener("htmx:afterSettle", show);
    window.addEventListener("pageshow", show);
    show();
  }

  // ---------------------------------------------------------------- who decides
  // The name that was given last stands in each form.
  const author = "author of rules";
  const fill = (part) => {
    const known = localStorage.getItem(author);
    if (known) for (const each of part.querySelectorAll("input[data-author]")) each.value = known;
  };
  fill(document);
  document.body.addEventListener("htmx:load", (event) => fill(event.detail.elt));
  document.addEventListener("submit", (event) => {
    const given = event.target.querySelector("input[data-author]");
    if (given) localStorage.setItem(author, given.value);
  });

  // ---------------------------------------------------------------- live
  const live = document.getElementById("live");
  setInterval(() => {
    if (document.hidden || (live && !live.checked)) return;
    for (const each of [list, facts]) if (each) htmx.trigger(each, "refresh");
    draw();
  }, EVERY_MS);

  // ---------------------------------------------------------------- the chart
  const place = document.querySelector("[data-chart]");
  let chart = null;
  let unit = "";
  let drawn = "";
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ stroke: style("--text"), grid: { stroke: style("--line"), width: 1 },
    ticks: { stroke: style("--line"), width: 1 } });
  const options = () => ({
    width: place.clientWidth,
    height: 220,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    scales: { x: { time: unit === "seconds" }, y: { range: (_, __, most) => [0, Math.max(1, most)] } },
    axes: [axis(), { ...axis(), size: 60 }],
    cursor: { drag: { x: false, y: false } },
    series: [
      { label: unit === "seconds" ? "from" : "line" },
      { label: "events", stroke: style("--chart"), fill: style("--chart"),
        paths: uPlot.paths.bars({ size: [0.9, 60], align: 1 }), points: { show: false } },
    ],
  });
  async function draw() {
    if (!place) return;
    let answer;
    try {
      answer = await fetch(place.dataset.chart);
      if (!answer.ok) return;
      answer = await answer.text();
    } catch { return; } // the server is away: the next time
    if (answer === drawn) return;
    drawn = answer;
    const found = JSON.parse(answer);
    const data = [found.counts.map((_, at) => found.axis.start + at * found.axis.width), found.counts];
    unit = found.axis.unit;
    const before = document.getElementById("before");
    before.textContent = found.before
      ? `${found.before.toLocaleString("en")} of ${found.count.toLocaleString("en")} events came before, or at a time that is not known.` : "";
    if (chart) chart.setData(data);
    else chart = new uPlot(options(), data, place);
  }
  if (place) {
    window.addEventListener("load", draw);
    const again = () => { if (chart) { chart.destroy(); chart = null; drawn = ""; draw(); } };
    window.addEventListener("resize", again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }
})();
