// Draws the figures, saves them, and pages through tables. Everything that it shows is set as text, never as markup.
(() => {
  "use strict";
  const store = JSON.parse(document.getElementById("report-data").textContent);
  const drawn = new Map();

  const save = (name, kind, content) => {
    const link = document.createElement("a");
    const address = URL.createObjectURL(new Blob([content], { type: kind }));
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  // A cell that a spreadsheet would take for a formula is marked as text.
  const csvCell = (cell) => {
    if (cell === null || cell === undefined) return "";
    let text = String(cell);
    if (typeof cell === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 1 ? 4 : 2 });

  const draw = async (figure) => {
    const id = figure.dataset.figure;
    const places = [...figure.querySelectorAll(".drawing")];
    const results = await Promise.all(store.figures[id].panels.map(({ spec, datasets }, place) =>
      window.vegaEmbed(places[place], { ...spec, datasets }, { renderer: "svg", actions: false, ast: true, tooltip: { theme: "none" } })));
    drawn.set(id, results);
    for (const place of places) place.classList.add("short");
    figure.dataset.drawn = "yes";
  };

  // The panels of a figure below each other as one picture, each below its title.
  const picture = async (figure, views) => {
    const parser = new DOMParser();
    const whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const titles = [...figure.querySelectorAll(".panel")].map((panel) => panel.querySelector("code")?.textContent ?? "");
    let width = 0, height = 0;
    for (const [place, view] of views.entries()) {
      const svg = parser.parseFromString(await view.toSVG(), "image/svg+xml").documentElement;
      if (titles[place]) {
        const title = document.createElementNS(whole.namespaceURI, "text");
        title.textContent = titles[place];
        for (const [name, value] of Object.entries({ x: 5, y: height + 18, "font-family": "sans-serif", "font-size": 13, "font-weight": 600 })) title.setAttribute(name, value);
        whole.append(title);
        height += 26;
      }
      svg.setAttribute("y", height);
      whole.append(document.importNode(svg, true));
      width = Math.max(width, Number(svg.getAttribute("width")));
      height += Number(svg.getAttribute("height")) + 12;
    }
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) whole.setAttribute(name, value);
    return new XMLSerializer().serializeToString(whole);
  };

  const figures = [...document.querySelectorAll("figure[data-figure]")];
  for (const figure of figures) {
    const id = figure.dataset.figure;
    figure.querySelector("[data-save=data]").addEventListener("click", () => {
      const { columns, rows } = store.figures[id];
      save(id + ".csv", "text/csv", csv(columns, rows));
    });
    const svg = figure.querySelector("[data-save=svg]");
    svg?.addEventListener("click", async () => {
      if (!drawn.get(id)) await draw(figure);
      save(id + ".svg", "image/svg+xml", await picture(figure, drawn.get(id).map((one) => one.view)));
    });
  }

  if (window.vegaEmbed) {
    // Those in sight first; the others when the browser has nothing else to do, so that they are there in print too.
    const waiting = new Set(figures);
    const drawOnce = (figure) => {
      if (waiting.delete(figure)) return draw(figure);
    };
    const sight = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) drawOnce(entry.target);
    }, { rootMargin: "200px" });
    for (const figure of figures) sight.observe(figure);
    const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
    const next = () => {
      const [figure] = waiting;
      if (figure) Promise.resolve(drawOnce(figure)).then(() => idle(next));
    };
    window.addEventListener("load", () => setTimeout(() => idle(next), 400));
  }

  // What is folded opens for a link to it, and for print.
  const unfold = () => { const fold = document.getElementById(location.hash.slice(1))?.closest("details"); if (fold) fold.open = true; };
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details.fold")) fold.open = true; });
  unfold();

  const PAGE = 100;
  for (const box of document.querySelectorAll("[data-search]")) {
    const source = store.tables[box.dataset.search];
    const { columns, rows } = source;
    const body = box.querySelector("tbody");
    const status = box.querySelector("[role=status]");
    const [earlier, later] = box.querySelectorAll("[data-page]");
    const search = box.querySelector("input");
    const choice = box.querySelector("select");
    const choiceColumn = columns.indexOf(source.choice);
    let sorted = null, descending = true, start = 0, chosen = rows;

    const render = () => {
      const needle = search.value.toLowerCase();
      chosen = rows.filter((row) =>
        (choice.value === "" || String(row[choiceColumn]) === choice.value) &&
        (needle === "" || row.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(needle))));
      if (sorted !== null) {
        const sign = descending ? -1 : 1;
        chosen = [...chosen].sort((a, b) => {
          const [x, y] = [a[sorted], b[sorted]];
          if (x === y) return 0;
          if (x === null) return 1;
          if (y === null) return -1;
          return x < y ? -sign : sign;
        });
      }
      start = Math.max(0, Math.min(start, Math.floor((chosen.length - 1) / PAGE) * PAGE));
      body.replaceChildren(...chosen.slice(start, start + PAGE).map((row) => {
        const line = document.createElement("tr");
        for (const cell of row) {
          const td = line.insertCell();
          td.textContent = cell === null ? "" : typeof cell === "boolean" ? (cell ? "yes" : "no") : typeof cell === "number" ? number(cell) : cell;
          if (typeof cell === "number") td.className = "number";
        }
        return line;
      }));
      const end = Math.min(start + PAGE, chosen.length);
      status.textContent = chosen.length ? `${(start + 1).toLocaleString("en-US")} to ${end.toLocaleString("en-US")} of ${chosen.length.toLocaleString("en-US")}` : "none";
      earlier.disabled = start === 0;
      later.disabled = end >= chosen.length;
    };
    search.addEventListener("input", () => { start = 0; render(); });
    choice.addEventListener("change", () => { start = 0; render(); });
    earlier.addEventListener("click", () => { start -= PAGE; render(); });
    later.addEventListener("click", () => { start += PAGE; render(); });
    for (const [place, head] of [...box.querySelectorAll("thead th")].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        descending = sorted === place ? !descending : true;
        sorted = place;
        for (const other of box.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        render();
      });
    }
    box.querySelector("[data-save=table]").addEventListener("click", () => save(source.name + ".csv", "text/csv", csv(columns, rows)));
    render();
  }
})();
