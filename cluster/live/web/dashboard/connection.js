"use strict";

/** What the pages of a dashboard share: the connection to the server, texts, and charts. */
const dashboard = (() => {
  const RETRY_MS = 3000;
  const byId = (id) => document.getElementById(id);

  /** Sets a node's text, unless it has it: an unchanged node costs no layout. */
  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  /** A new element with a class and a text. */
  function make(tag, className = "", text = "") {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  }

  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  function number(value) { return value === null || value === undefined ? "–" : whole.format(value); }
  function compact(value) { return Math.abs(value) >= 1e15 ? value.toExponential(2) : Math.abs(value) >= 10000 ? short.format(value) : Number.isInteger(value) ? whole.format(value) : fine.format(value); }
  function duration(ms) {
    if (ms === null || ms === undefined) return "–";
    const seconds = ms / 1000;
    if (seconds < 100) return `${seconds.toFixed(1)} s`;
    const minutes = Math.floor(seconds / 60), rest = String(Math.floor(seconds % 60)).padStart(2, "0");
    return minutes < 60 ? `${minutes}:${rest} min` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")} h`;
  }

  /** Tiles with a number each: `entries` are [name, text] pairs, always the same names. */
  function tiles(list, entries) {
    entries.forEach(([name, text], position) => {
      let tile = list.children[position];
      if (!tile) {
        tile = list.appendChild(document.createElement("div"));
        tile.append(make("dt", "", name), make("dd"));
      }
      setText(tile.lastChild, text);
    });
  }

  // --- the connection ---------------------------------------------------------------------------------------------

  /**
   * Calls `begin(snapshot)` once per connection, then `update(state)` for the newest state, at most once a frame.
   * While the page is hidden no frame comes, and nothing is drawn.
   */
  function connect(begin, update) {
    let stream = null, newest = null, isScheduled = false, isOver = false;
    const tell = (word) => setText(byId("connection"), word);

    function draw() {
      isScheduled = false;
      const state = newest;
      newest = null;
      if (state) update(state);
    }

    async function start() {
      let snapshot = null;
      try {
        const answer = await fetch("dashboard", { cache: "no-store" });
        if (answer.ok) snapshot = await answer.json();
      } catch { /* the server is gone, or went away in the middle */ }
      if (!snapshot?.now) {
        tell(snapshot ? "Connected: nothing to show yet" : "Not connected: trying again");
        setTimeout(start, RETRY_MS);
        return;
      }
      begin(snapshot);
      listen();
    }

    function listen() {
      stream = new EventSource("dashboard/updates");
      stream.onopen = () => tell("Connected");
      stream.onmessage = (message) => {
        newest = JSON.parse(message.data);
        if (!isScheduled) { isScheduled = true; requestAnimationFrame(draw); }
      };
      stream.addEventListener("end", () => {
        isOver = true;
        stream.close();
        document.body.classList.add("over");
        tell("Over: this page shows the last state");
      });
      stream.onerror = () => {
        stream.close();
        if (!isOver) { tell("Not connected: trying again"); setTimeout(start, RETRY_MS); }
      };
    }

    start();
  }

  // --- charts -----------------------------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg", WIDTH = 300, HEIGHT = 84;
  function svg(tag, attributes = {}, parent = null) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (parent) parent.append(node);
    return node;
  }

  /** A chart of one or two series over time. `draw(points)` takes [at, value, …] rows, ascending. */
  function chart(parent, title, names) {
    const figure = parent.appendChild(make("figure", "spark"));
    const head = figure.appendChild(make("figcaption"));
    head.append(make("strong", "", title));
    const values = names.map((name, series) => {
      const label = head.appendChild(make("span", `value s${series}`));
      label.append(make("i", `stroke s${series}`), document.createTextNode(name ? `${name} ` : ""), make("b"));
      return label.lastChild;
    });
    const frame = figure.appendChild(make("div", "plot"));
    const top = frame.appendChild(make("span", "top"));
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, frame);
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "axis" }, drawing);
    const lines = names.map((_, series) => svg("path", { class: `line c${series}${series ? " dashed" : ""}` }, drawing));
    function draw(points) {
      if (!points.length) return;
      const from = points[0][0], span = Math.max(1, points[points.length - 1][0] - from);
      let most = 0;
      for (const point of points) for (let series = 1; series <= names.length; series++) most = Math.max(most, point[series]);
      const scale = most > 0 ? (HEIGHT - 6) / most : 0;
      lines.forEach((line, series) => {
        const parts = points.map((point) => `${((point[0] - from) * WIDTH / span).toFixed(1)} ${(HEIGHT - 1 - point[series + 1] * scale).toFixed(1)}`);
        line.setAttribute("d", `M${parts.join("L")}`);
        setText(values[series], compact(points[points.length - 1][series + 1]));
      });
      setText(top, compact(most));
    }
    return { draw };
  }

  return { byId, setText, make, number, compact, duration, tiles, connect, chart, svg };
})();
