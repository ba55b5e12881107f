"use strict";

// Text from the results enters the page by append() and setAttribute() alone: it is never markup.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const cells = new Map(data.cells.map((cell) => [cell.id, cell]));
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const [table, filter, dialog] = ["table", "filter", "origin"].map(byId);
const namespace = document.querySelector("svg").namespaceURI;
const DASHES = ["none", "7 4", "2 3", "9 3 2 3", "14 4", "9 3 2 3 2 3", "1 5", "4 2"];
const COLOURS = 6;
const CROWD = 6; // lines in a plot from which bands hide more than they show
const NONE = "–";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(namespace, tag), attributes, children);

// ---- the view: how the table is sorted and what is shown of it. A link can say it, and which
// cell to open: #sort=success&order=ascending&filter=task1+euler&cell=TASK/AGENT-RECIPE

const view = { sort: "", order: "", filter: "" };

function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (["sort", "filter", "cell"].some((name) => asked.has(name))) {
    view.sort = asked.get("sort") in data.columns ? asked.get("sort") : "";
    const known = ["ascending", "descending"].includes(asked.get("order"));
    view.order = known ? asked.get("order") : usual(view.sort);
    view.filter = asked.get("filter") ?? "";
    filter.value = view.filter;
  }
  show();
  if (cells.has(asked.get("cell"))) tell(cells.get(asked.get("cell")));
}

function remember() {
  const { sort, order } = view;
  const said = { ...(sort && { sort, order }), ...(view.filter && { filter: view.filter }) };
  history.replaceState(null, "", `#${new URLSearchParams(said)}`);
}

// Numbers are looked at from the largest, names from the first.
const usual = (key) =>
  all(`td.number[data-key="${key}"]`, table).length ? "descending" : "ascending";

function show() {
  for (const button of all("[data-sort]", table)) {
    const chosen = button.dataset.sort === view.sort;
    if (chosen) button.parentNode.setAttribute("aria-sort", view.order);
    else button.parentNode.removeAttribute("aria-sort");
  }
  if (view.sort) sort();
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all("tr[data-cell]", table);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  for (const body of table.tBodies) body.hidden = !all("tr[data-cell]:not([hidden])", body).length;
  const left = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.cell));
  byId("count").textContent = `${left.size} of ${rows.length} cells`;
  for (const section of all(".task")) {
    const keys = all(".keys button", section);
    for (const key of keys) key.parentNode.hidden = !left.has(key.dataset.cell);
    section.hidden = keys.every((key) => key.parentNode.hidden);
    if (!section.hidden) all("figure", section).forEach(draw);
  }
}

// Within each body: cells of different lengths keep apart. What has no number comes last.
function sort() {
  const sign = view.order === "ascending" ? 1 : -1;
  const value = (row) => {
    const field = row.querySelector(`[data-key="${view.sort}"]`);
    if (field.classList.contains("text")) return field.textContent;
    return "value" in field.dataset ? Number(field.dataset.value) : null;
  };
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  };
  for (const body of table.tBodies) body.append(...all("tr[data-cell]", body).sort(compare));
  if (view.sort === "steps")
    table.append(...[...table.tBodies].sort((a, b) => sign * (a.dataset.steps - b.dataset.steps)));
}

table.tHead.addEventListener("click", ({ target }) => {
  const key = target.dataset.sort;
  if (!key) return;
  const flipped = view.order === "ascending" ? "descending" : "ascending";
  view.order = key === view.sort ? flipped : usual(key);
  view.sort = key;
  show();
  remember();
});
filter.addEventListener("input", () => {
  view.filter = filter.value.trim();
  show();
  remember();
});

// ---- plots

function draw(figure) {
  const section = figure.closest(".task");
  const plot = figure.querySelector(".plot");
  const panel = data.panels[figure.dataset.panel];
  const pressed = all('li:not([hidden]) > button[aria-pressed="true"]', section);
  const shown = pressed
    .map((key) => cells.get(key.dataset.cell))
    .map((cell) => ({ cell, line: cell.lines[figure.dataset.panel] }))
    .filter(({ line }) => line);
  const { width, height } = plot.getBoundingClientRect();
  if (!width) return;
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  plot.replaceChildren();
  if (!shown.length) return;

  const good = (value) => value !== null && (!panel.log || value > 0);
  const heights = shown.flatMap(({ line }) => line.seeds.flat().filter(good));
  const ends = panel.whole ? [0, 1] : extent(heights, panel.log);
  const last = Math.max(...shown.map(({ line }) => line.x.at(-1)));
  const y = scale(ends, [height - 34, 10], panel.log);
  const x = scale([0, last], [46, width - 16], false);
  for (const tick of panel.log ? decades(ends) : ticks(ends, 5)) {
    plot.append(svg("line", { class: "grid", x1: 46, x2: width - 16, y1: y(tick), y2: y(tick) }));
    plot.append(svg("text", { x: 40, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of ticks([0, last], width < 420 ? 4 : 6, 1)) {
    plot.append(svg("text", { x: x(tick), y: height - 18, "text-anchor": "middle" }, short(tick)));
  }
  plot.append(svg("text", { x: width - 16, y: height - 3, "text-anchor": "end" }, panel.across));
  section.classList.toggle("crowded", pressed.length > CROWD);
  for (const { cell, line } of shown) {
    const at = (values) => values.map((v, i) => (good(v) ? [x(line.x[i]), y(v)] : null));
    const group = svg("g", { class: `series ${colour(cell)}`, "data-cell": cell.id });
    if (line.seeds.length > 1) {
      group.append(svg("path", { class: "band", d: area(at(line.low), at(line.high)) }));
      group.append(...line.seeds.map((s) => svg("path", { class: "seed", d: path(at(s)) })));
    }
    const dash = { "stroke-dasharray": dashes(cell) };
    group.append(svg("path", { d: path(at(line.mean)), ...dash }));
    const alone = at(line.mean).filter(Boolean);
    if (alone.length === 1) group.append(svg("circle", { cx: alone[0][0], cy: alone[0][1], r: 3 }));
    plot.append(group);
  }
  figure.points = shown.flatMap(({ cell, line }) =>
    line.x.flatMap((step, i) =>
      good(line.mean[i]) ? [{ cell, line, i, x: x(step), y: y(line.mean[i]) }] : [],
    ),
  );
}

function extent(values, log = false) {
  const low = values.reduce((least, v) => Math.min(least, v), Infinity);
  const high = values.reduce((most, v) => Math.max(most, v), -Infinity);
  if (low > high) return log ? [0.1, 10] : [0, 1];
  if (log) return [low / 1.2, high * 1.2];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

function scale([from, to], [start, end], log) {
  const place = log ? Math.log : (v) => v;
  return (v) => start + ((place(v) - place(from)) / (place(to) - place(from))) * (end - start);
}

// Round numbers between two ends, about so many.
function ticks([from, to], count, least = 0) {
  const raw = (to - from) / count;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(least, unit * [1, 2, 5, 10].find((m) => m * unit >= raw * 0.999));
  const found = [];
  const first = Math.ceil(from / step - 1e-9);
  for (let i = first; i * step <= to * (1 + 1e-9); i++) found.push(i * step);
  return found;
}

// Powers of ten, every second or third where there are many; with 2 and 5 where there are few.
function decades([from, to]) {
  const [low, high] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const stride = Math.ceil((high - low) / 7);
  const between = to / from < 100 ? [1, 2, 5] : [1];
  const found = [];
  for (let e = low; e <= high; e += stride) found.push(...between.map((m) => m * 10 ** e));
  return found.filter((v) => v >= from && v <= to);
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e7 || (size && size < 1e-3)) return value.toExponential().replace("e+", "e");
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e3) return `${+(value / 1e3).toPrecision(4)}k`;
  return String(+value.toPrecision(4));
}

const points = (found) => found.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

// Broken where there is no number.
function pieces(found) {
  const parts = [[]];
  for (const one of found) {
    if (one) parts.at(-1).push(one);
    else if (parts.at(-1).length) parts.push([]);
  }
  return parts.filter((part) => part.length);
}
const path = (found) => pieces(found).map((part) => `M${points(part)}`).join("");
function area(low, high) {
  const both = low.map((l, i) => (l && high[i] ? [l, high[i]] : null));
  const outline = (part) => [...part.map(([, h]) => h), ...part.map(([l]) => l).reverse()];
  return pieces(both).map((part) => `M${points(outline(part))}Z`).join("");
}
const colour = (cell) => `colour${cell.colour % COLOURS}`;
const dashes = (cell) => DASHES[Math.floor(cell.colour / COLOURS) % DASHES.length];

function light(section, id) {
  section.classList.toggle("lighting", Boolean(id));
  for (const group of all(".series", section))
    group.classList.toggle("lit", group.dataset.cell === id);
}

function nearest(figure, event) {
  const box = figure.querySelector(".plot").getBoundingClientRect();
  const far = (p) => Math.hypot(p.x - (event.clientX - box.left), p.y - (event.clientY - box.top));
  return (figure.points ?? []).reduce((best, p) => (!best || far(p) < far(best) ? p : best), null);
}

for (const section of all(".task")) {
  for (const figure of all("figure", section)) {
    const plot = figure.querySelector(".plot");
    const readout = figure.querySelector(".readout");
    plot.addEventListener("pointermove", (event) => {
      const found = nearest(figure, event);
      if (!found) return;
      const { cell, line, i } = found;
      const [at, mean, low, high] = ["x", "mean", "low", "high"].map((of) => short(line[of][i]));
      const interval = line.seeds.length > 1 ? ` [${low}, ${high}]` : "";
      readout.textContent = `${cell.name}, ${at}: ${mean}${interval}`;
      light(section, cell.id);
    });
    plot.addEventListener("pointerleave", () => {
      readout.textContent = "";
      light(section, "");
    });
    plot.addEventListener("click", (event) => {
      const found = nearest(figure, event);
      if (found && event.pointerType === "mouse") tell(found.cell);
    });
  }
  for (const key of all(".keys button", section)) {
    const cell = cells.get(key.dataset.cell);
    const swatch = key.querySelector("svg");
    swatch.classList.add(colour(cell));
    swatch.append(svg("path", { d: "M0 5H26", "stroke-dasharray": dashes(cell) }));
    key.addEventListener("click", () => {
      key.setAttribute("aria-pressed", key.getAttribute("aria-pressed") !== "true");
      all("figure", section).forEach(draw);
    });
    for (const on of ["pointerenter", "focus"])
      key.addEventListener(on, () => light(section, cell.id));
    for (const off of ["pointerleave", "blur"]) key.addEventListener(off, () => light(section, ""));
  }
}
byId("seeds").addEventListener("change", ({ target }) => {
  document.body.classList.toggle("every", target.checked);
});
new ResizeObserver(() => all(".task:not([hidden]) figure").forEach(draw)).observe(document.body);

// ---- where a number comes from

function tell(cell, column = null) {
  const close = html("button", { type: "button", class: "close" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const title = `${cell.name} on ${cell.task}, ${short(cell.steps)} steps`;
  dialog.replaceChildren(close, html("h2", { id: "origin-title" }, title));
  if (cell.notes.length) dialog.append(html("p", { class: "mark" }, cell.notes.join(", ")));
  if (column && data.columns[column].meaning) {
    const { heading, meaning } = data.columns[column];
    const said = `${heading} ${cell.numbers[column]}`;
    dialog.append(html("p", { class: "asked" }, html("strong", {}, said), html("br"), meaning));
  }
  const measured = Object.entries(cell.numbers).filter(([, text]) => text !== NONE);
  part("Numbers", list(measured.map(([key, text]) => [data.columns[key].heading, text])));
  if (cell.source) dialog.append(html("p", {}, `Published: ${cell.source}.`));
  part("Seeds", seedsTable(cell));
  const differing = Object.entries(cell.differing).map(([name, found]) => [name, found.join(", ")]);
  const same = html("p", {}, "Nothing of commit, JAX and data.");
  part("What differs between seeds", differing.length ? list(differing) : same);
  const origin = html("p", cell.data === "official" ? {} : { class: "mark" }, `${cell.data} data`);
  const hash = shared(cell, "sha256", (s) => s.data_sha256);
  part("Data", origin, list([...hash, ...leaves(cell.recipe.data)]));
  part("Made with", list([
    ...shared(cell, "run", (s) => s.run),
    ...shared(cell, "manifest", (s) => s.manifest),
    ...shared(cell, "commit", (s) => s.commit),
    ...shared(cell, "source", (s) => s.source_sha256),
    ...shared(cell, "device", (s) => s.device),
    ...shared(cell, "repeats", (s) => s.exact),
    ...shared(cell, "started", (s) => s.started),
    ...shared(cell, "ended", (s) => s.ended ?? "not ended"),
    ...shared(cell, "versions", versions),
  ]));
  const { data: _, ...recipe } = cell.recipe;
  part("Recipe", list([["hash", cell.id.slice(-8)], ...leaves(recipe)]));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

const versions = (seed) =>
  Object.entries(seed.versions)
    .map((pair) => pair.join(" "))
    .join(", ");
const part = (title, ...nodes) => dialog.append(html("h3", {}, title), ...nodes);
const list = (pairs) =>
  html("dl", {}, ...pairs.flatMap(([k, v]) => [html("dt", {}, k), html("dd", {}, v)]));

// One line where all seeds agree, else one for each value.
function shared(cell, name, of) {
  const found = Map.groupBy(cell.seeds, of);
  const which = (seeds) =>
    found.size > 1 ? ` (seeds ${seeds.map((s) => s.seed).join(", ")})` : "";
  return [...found].map(([value, seeds]) => [name + which(seeds), value]);
}

function leaves(tree, above = "") {
  return Object.entries(tree).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? leaves(value, `${above}${name}.`)
      : [[above + name, Array.isArray(value) ? value.join(" ") : String(value)]],
  );
}

function seedsTable(cell) {
  const heads = ["seed", "success", "without noise", "status", "file"];
  const rows = cell.seeds.map((seed) => {
    const why = `frozen at ${seed.frozen_at}: ${seed.status}`;
    return html(
      "tr", {},
      html("td", {}, String(seed.seed)),
      html("td", {}, seed.success.toFixed(3)),
      html("td", {}, seed.noise0 === null ? NONE : seed.noise0.toFixed(3)),
      html("td", seed.frozen ? { class: "mark" } : {}, seed.frozen ? why : "never frozen"),
      html("td", { class: "code" }, seed.file),
    );
  });
  const titles = heads.map((text) => html("th", { scope: "col" }, text));
  const head = html("thead", {}, html("tr", {}, ...titles));
  const wide = { class: "wide", tabindex: "0", role: "region", "aria-label": "Seeds" };
  return html("div", wide, html("table", {}, head, html("tbody", {}, ...rows)));
}

table.addEventListener("click", ({ target }) => {
  const field = target.closest("td.number:not(.none)");
  if (field) tell(cells.get(field.closest("tr").dataset.cell), field.dataset.key);
});
dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());

addEventListener("hashchange", follow);
follow();
