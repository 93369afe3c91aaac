"use strict";
(() => {
  const root = document.documentElement;

  // --- copying ------------------------------------------------------------------------------------------------------

  function selectAndCopy(source) {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    const word = button.textContent;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      let copied = false;
      try { await navigator.clipboard.writeText(source.textContent); copied = true; } catch { copied = selectAndCopy(source); }
      button.textContent = copied ? "Copied" : "Select and copy";
      setTimeout(() => { button.textContent = word; }, 1600);
    });
  }

  // --- filtering a list ---------------------------------------------------------------------------------------------

  for (const filter of document.querySelectorAll("[data-filter]")) filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.getElementById(filter.dataset.filter).tBodies[0].rows) {
      const text = row.dataset.search ?? row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });

  // --- sorting a table ----------------------------------------------------------------------------------------------

  for (const table of document.querySelectorAll("table.sortable")) [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !head.classList.contains("num"));
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const value = (row) => row.cells[place]?.dataset.value ?? row.cells[place]?.textContent.trim() ?? "";
      const order = (one, other) => (isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other) * (rising ? 1 : -1);
      const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
      rows.sort(([one], [other]) => (one === "") - (other === "") || order(one, other));  // empty ones last
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });

  // --- linked axes: a moment or height that is pointed at is marked in every chart and in the timeline ------------------

  function linkAxes(data) {
    const finals = (data?.lanes ?? []).map((lane) => lane.blocks).reduce((most, blocks) => (blocks.length > most.length ? blocks : most), []);
    const links = { at: null, pointed: () => {}, chosen: () => {}, point, range };
    const charts = [...document.querySelectorAll("svg.chart[data-axis]")].map((svg) => {
      const [low, high, start, end, top, floor] = svg.dataset.scale.split(" ").map(Number);
      const shown = shape(svg, "rect", "shown"), cursor = shape(svg, "line", "cursor");
      shown.setAttribute("y", top); shown.setAttribute("height", floor - top);
      cursor.setAttribute("y1", top); cursor.setAttribute("y2", floor);
      return { svg, shown, cursor, low, high, start, end, isTime: svg.dataset.axis === "seconds" };
    });

    function shape(svg, name, kind) {
      const made = document.createElementNS(svg.namespaceURI, name);
      made.setAttribute("class", kind);
      made.setAttribute("visibility", "hidden");
      svg.append(made);
      return made;
    }

    // between the two points of a rising list around a value, from one column to the other
    function between(value, of, to) {
      if (!finals.length || value < finals[0][of] || value > finals.at(-1)[of]) return null;
      let low = 0, high = finals.length - 1;
      while (high - low > 1) { const middle = (low + high) >> 1; if (finals[middle][of] <= value) low = middle; else high = middle; }
      const [one, other] = [finals[low], finals[high]], span = other[of] - one[of];
      return span ? one[to] + (other[to] - one[to]) * (value - one[of]) / span : one[to];
    }

    const across = (chart, ms) => {
      const value = chart.isTime ? ms / 1000 : between(ms, 0, 1);
      if (value === null || value < chart.low || value > chart.high) return null;
      return chart.start + (value - chart.low) / (chart.high - chart.low) * (chart.end - chart.start);
    };

    function point(ms) {
      if (ms === links.at) return;
      links.at = ms;
      for (const chart of charts) {
        const at = ms === null ? null : across(chart, ms);
        chart.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
        if (at !== null) for (const name of ["x1", "x2"]) chart.cursor.setAttribute(name, at);
      }
      links.pointed();
    }

    function range(from, to, isPart) {
      const clamp = (ms) => (finals.length ? Math.max(finals[0][0], Math.min(finals.at(-1)[0], ms)) : ms);
      for (const chart of charts) {
        const bound = (ms) => (chart.isTime ? Math.max(chart.low * 1000, Math.min(chart.high * 1000, ms)) : clamp(ms));
        const start = across(chart, bound(from)), end = across(chart, bound(to));
        const isSeen = isPart && start !== null && end !== null;
        chart.shown.setAttribute("visibility", isSeen ? "visible" : "hidden");
        if (isSeen) { chart.shown.setAttribute("x", start); chart.shown.setAttribute("width", Math.max(1, end - start)); }
      }
    }

    function moment(chart, event) {
      const box = chart.svg.getBoundingClientRect();
      const pixel = (event.clientX - box.left) / box.width * chart.svg.viewBox.baseVal.width;
      if (pixel < chart.start || pixel > chart.end) return null;
      const value = chart.low + (pixel - chart.start) / (chart.end - chart.start) * (chart.high - chart.low);
      return chart.isTime ? value * 1000 : between(value, 1, 0);
    }

    for (const chart of charts) {
      chart.svg.addEventListener("pointermove", (event) => point(moment(chart, event)));
      chart.svg.addEventListener("pointerleave", () => point(null));
      chart.svg.addEventListener("click", (event) => { const ms = moment(chart, event); if (ms !== null) links.chosen(ms); });
    }
    return links;
  }

  // --- timeline -----------------------------------------------------------------------------------------------------

  const source = document.getElementById("timeline-data");
  const timelineData = source && JSON.parse(source.textContent);
  const links = linkAxes(timelineData);
  if (timelineData) timeline(timelineData);
  stampedeTheme.apply();

  function timeline(data) {
    const canvas = document.getElementById("timeline"), overview = document.getElementById("overview");
    const details = document.getElementById("details"), select = document.getElementById("windows");
    const NOT_ARRIVING = -1, NOT_LEAVING = -2, MAX_DRAWN = 6000, MIN_SPAN_MS = 2, LOST_SHARE = 0.35, ALWAYS_DRAWN_MS = 3000, MIN_PIXELS_PER_MS = 0.12;
    const TOP = 44, BOTTOM = 12, OVERVIEW = 30, HIT_PIXELS = 7, CROWD = 12, COMB = 100, SHIFT = 24;
    const failedViews = new Set(data.failedViews);
    const hiddenKinds = new Set();
    let from = data.begun, to = data.duration, width = 0, left = 0, lane = 0, colours = {}, hits = [], labels = [], pointed = null;

    for (const window of data.windows) for (const message of window.messages) message.at = message[4] / 1000;
    const range = /[#&]t=([\d.]+)-([\d.]+)/.exec(location.hash);
    if (range && +range[2] > +range[1]) { from = +range[1]; to = +range[2]; clampRange(); }

    const x = (ms) => left + (ms - from) / (to - from) * (width - left - 8);
    const time = (pixel) => from + (pixel - left) / (width - left - 8) * (to - from);
    const y = (place) => TOP + lane * (place + 0.5);
    const seconds = (ms) => `${(ms / 1000).toFixed(to - from < 200 ? 4 : to - from < 2000 ? 3 : 2)} s`;

    function clampRange() {
      const span = Math.min(data.duration - data.begun, Math.max(MIN_SPAN_MS, to - from));
      from = Math.max(data.begun, Math.min(from, data.duration - span));
      to = from + span;
    }

    function show(newFrom, newTo) {
      from = newFrom; to = newTo;
      clampRange();
      pointed = null;
      draw();
    }

    function zoom(factor, around = (from + to) / 2) {
      show(around - (around - from) * factor, around + (to - around) * factor);
    }

    function colour(name) {
      return colours[name] ??= getComputedStyle(root).getPropertyValue(`--${name}`).trim();
    }

    function prepare(element, height) {
      const ratio = devicePixelRatio || 1, wide = element.parentElement.clientWidth;
      element.style.height = `${height}px`;
      if (element.width !== Math.round(wide * ratio) || element.height !== Math.round(height * ratio)) {
        element.width = Math.round(wide * ratio);
        element.height = Math.round(height * ratio);
      }
      const pen = element.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, wide, height);
      width = wide;
      return pen;
    }

    function draw() {
      colours = {};
      hits = [];
      labels = [];
      const wide = canvas.parentElement.clientWidth;
      if (!wide) return;
      lane = data.lanes.length <= 4 ? 52 : data.lanes.length <= 8 ? 44 : 36;
      left = wide < 560 ? 34 : 104;
      const height = TOP + lane * data.lanes.length + BOTTOM;
      const pen = prepare(canvas, height);
      pen.font = "11.5px system-ui, sans-serif";
      pen.textBaseline = "middle";
      drawAxis(pen, height);
      drawFaults(pen);
      data.lanes.forEach((each, place) => drawLane(pen, each, place));
      drawWindows(pen);
      const drawn = drawMessages(pen);
      if (pointed) drawPointed(pen);
      drawCursor(pen, height);
      drawLabels(pen);
      drawOverview();
      links.range(from, to, from > data.begun || to < data.duration);
      Object.assign(canvas.dataset, { from: from.toFixed(2), to: to.toFixed(2), messages: drawn });
      tell(drawn);
    }

    function niceStep(span, wanted) {
      const rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
      return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    }

    function drawAxis(pen, height) {
      const step = niceStep(to - from, width < 560 ? 4 : 8);
      const digits = Math.max(0, -Math.floor(Math.log10(step / 1000) + 1e-9));
      pen.textAlign = "center";
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
        pen.fillStyle = colour("grid");
        pen.fillRect(Math.round(x(at)), TOP - 8, 1, height - TOP);
        pen.fillStyle = colour("ink-2");
        const label = `${(at / 1000).toFixed(digits)} s`;
        const half = pen.measureText(label).width / 2;
        if (x(at) - half > left - 30 && x(at) + half < width) pen.fillText(label, x(at), 9);
      }
    }

    const byBeginning = [...data.faults].sort((one, other) => one.from - other.from);
    const title = (fault) => `${fault.number} ${fault.name}`.trim();

    function drawFaults(pen) {
      const seen = byBeginning.filter((fault) => fault.lanes.length && fault.to >= from && fault.from <= to);
      const names = [], ends = [], covered = [], shift = seen.length > CROWD ? 0 : SHIFT;
      const isComb = seen.length > COMB;  // hatches of many faults would be a wall
      let free = left;
      for (const [place, fault] of seen.entries()) {
        const start = Math.max(left, x(fault.from)), end = Math.min(width - 8, Math.max(start + (isComb ? 1 : 2), x(fault.to)));
        for (const row of fault.lanes) {
          const top = TOP + lane * row + 1, high = lane - 2;
          hits.push({ box: [start, top, end, top + high], text: [title(fault), `${seconds(fault.from)} to ${seconds(fault.to)}`], rank: 0 });
          if (isComb && !fault.isStall) {
            const fresh = Math.max(start, covered[row] ?? left);
            if (end <= fresh) continue;
            covered[row] = end;
            pen.fillStyle = colour("hatch");
            pen.fillRect(fresh, top, end - fresh, high);
            continue;
          }
          pen.save();
          pen.beginPath();
          pen.rect(start, top, end - start, high);
          pen.clip();
          pen.fillStyle = colour("hatch-ground");
          pen.fillRect(start, top, end - start, high);
          if (fault.isStall) {
            pen.globalAlpha = 0.2;
            pen.fillStyle = colour("fail");
            pen.fillRect(start, top, end - start, high);
          } else {
            pen.strokeStyle = colour("hatch");
            pen.lineWidth = 2;
            pen.beginPath();
            for (let at = start - high - (start % 8); at < end; at += 8) { pen.moveTo(at, top + high); pen.lineTo(at + high, top); }
            pen.stroke();
          }
          pen.restore();
          if (fault.number && start >= (ends[row] ?? left)) {
            labels.push([fault.number, start + 3, top + 7, "fail"]);
            ends[row] = start + pen.measureText(fault.number).width + 6;
          }
        }
        // the whole name where neither the next fault's begins before its end nor the drawing ends, else its short one;
        // nothing where others would push that far from its own beginning
        const next = place + 1 < seen.length ? Math.max(left, x(seen[place + 1].from)) : Infinity;
        const most = width - 8, wide = pen.measureText(title(fault)).width;
        const at = Math.max(free, Math.min(start, seen.length === 1 ? most - wide : most));
        const fits = at + wide <= most && at + wide + 8 <= next, label = fits ? title(fault) : fault.short;
        if (at + pen.measureText(label).width > most || (!fits && at - start > shift)) continue;
        free = at + pen.measureText(label).width + 8;
        names.push(label);
        pen.fillStyle = colour("fail");
        pen.textAlign = "left";
        pen.fillText(label, at, 36);
      }
      canvas.dataset.faults = names.join("; ");
    }

    function drawWindows(pen) {
      for (const window of data.windows) {
        if (window.to < from || window.from > to) continue;
        const start = Math.max(left, x(window.from)), end = Math.min(width - 8, Math.max(start + 3, x(window.to)));
        pen.fillStyle = colour("focus");
        pen.fillRect(start, 21, end - start, 4);
        hits.push({ box: [start, 17, end, 29], window, rank: 2, text: [`Recorded: ${window.reason}`, `${seconds(window.from)} to ${seconds(window.to)}, ${window.messages.length.toLocaleString("en")} messages${window.full ? ", and more than are kept" : ""}; click to zoom`] });
      }
    }

    function visible(list) {
      let low = 0, high = list.length;
      while (low < high) { const middle = (low + high) >> 1; if (list[middle][0] < from) low = middle + 1; else high = middle; }
      return Math.max(0, low - 1);
    }

    // the views between two that were kept
    function drawBetween(pen, each, middle, bar, from_, to_) {
      const start = Math.max(left, x(from_)), end = Math.min(width - 8, x(to_));
      if (end - start < 0.35) return;
      pen.fillStyle = colour("axis");
      pen.globalAlpha = 0.25;
      pen.fillRect(start, middle - bar / 2, end - start, bar);
      pen.globalAlpha = 1;
      hits.push({ box: [start, middle - bar, end, middle + bar + 5], rank: 0, text: [`${each.name} · shorter views, which are not drawn`, `from ${seconds(from_)} to ${seconds(to_)}`] });
    }

    function drawLane(pen, each, place) {
      const middle = y(place), bar = 9;
      pen.textAlign = "right";
      pen.fillStyle = colour("ink");
      pen.fillText(shortName(pen, each.name), left - 10, middle);
      pen.fillStyle = colour("rule");
      pen.fillRect(left, TOP + lane * (place + 1), width - left - 8, 1);
      let covered = -1;
      for (let i = visible(each.views); i < each.views.length && each.views[i][0] <= to; i++) {
        const [at, view, ended] = each.views[i], next = i + 1 < each.views.length ? each.views[i + 1][0] : data.duration;
        const until = ended ?? next, start = Math.max(left, x(at)), end = Math.min(width - 8, x(until));
        if (ended !== undefined) drawBetween(pen, each, middle, bar, ended, next);
        if (end <= left || end < covered + 0.35) continue;
        covered = end;
        const failed = failedViews.has(view);
        pen.fillStyle = colour(failed ? "inconclusive" : view % 2 ? "axis" : "ink-3");
        pen.globalAlpha = failed ? 0.75 : 0.5;
        pen.fillRect(start, middle - bar / 2, Math.max(0.7, end - start - (end - start > 3 ? 1 : 0)), bar);
        pen.globalAlpha = 1;
        if (end - start > 26) labels.push([end - start > 56 ? `view ${view}` : `${view}`, start + 3, middle + bar / 2 + 8, "ink-2"]);
        hits.push({ box: [start, middle - bar, end, middle + bar + 5], rank: 1, text: [`${each.name} · view ${view}${failed ? ", without a final block" : ""}`, `from ${seconds(at)} for ${(until - at).toFixed(1)} ms`] });
      }
      let lastLabel = -1e9, lastTick = -1e9;
      const isDense = each.blocks.length > width / 3 && to - from > (data.duration - data.begun) / 4;
      for (let i = visible(each.blocks); i < each.blocks.length && each.blocks[i][0] <= to; i++) {
        const [at, height] = each.blocks[i];
        if (at < from) continue;
        const across = x(at);
        if (across - lastTick < 0.8) continue;
        lastTick = across;
        pen.fillStyle = colour("c2");
        pen.globalAlpha = isDense ? 0.45 : 1;
        pen.fillRect(across - 0.9, middle - 13, isDense ? 0.9 : 1.8, 13 + bar / 2);
        pen.globalAlpha = 1;
        if (across - lastLabel > 30 && to - from < (data.duration - data.begun) * 0.6) {
          lastLabel = across;
          labels.push([`${height}`, across + 3, middle - 11, "c2"]);
        }
        hits.push({ box: [across - 4, middle - 15, across + 4, middle - bar / 2], rank: 2, text: [`${each.name} · height ${height} final`, seconds(at)] });
      }
    }

    function drawLabels(pen) {
      pen.textAlign = "left";
      pen.font = "10.5px system-ui, sans-serif";
      pen.lineWidth = 3;
      pen.lineJoin = "round";
      pen.strokeStyle = colour("card");
      for (const [words, across, at, ink] of labels) {
        pen.globalAlpha = 0.75;
        pen.strokeText(words, across, at);
        pen.globalAlpha = 1;
        pen.fillStyle = colour(ink);
        pen.fillText(words, across, at);
      }
    }

    function shortName(pen, name) {
      if (width < 560) { const digits = /\d+$/.exec(name); return digits ? digits[0] : name.slice(0, 3); }
      let short = name;
      while (short.length > 3 && pen.measureText(short).width > left - 14) short = `${short.slice(0, -2)}…`;
      return short;
    }

    function ends(message) {
      const [, , sender, receiver, , took] = message, at = message.at;
      if (took === NOT_LEAVING) return [x(at) - 10, y(receiver) + (y(sender) - y(receiver)) * LOST_SHARE, x(at), y(receiver)];
      if (took === NOT_ARRIVING) return [x(at), y(sender), x(at) + 10, y(sender) + (y(receiver) - y(sender)) * LOST_SHARE];
      return [x(at), y(sender), x(at + took / 1000), y(receiver)];
    }

    function drawMessages(pen) {
      const seen = [];
      if (to - from > ALWAYS_DRAWN_MS && (width - left) / (to - from) < MIN_PIXELS_PER_MS) return 0;
      for (const window of data.windows) {
        if (window.to < from || window.from > to) continue;
        for (const message of window.messages) {
          if (message.at > to || message.at + Math.max(0, message[5]) / 1000 < from || hiddenKinds.has(message[0])) continue;
          seen.push(message);
          if (seen.length > MAX_DRAWN) return 0;
        }
      }
      pen.save();
      pen.beginPath();
      pen.rect(left, TOP - 6, width - left - 8, lane * data.lanes.length + 10);
      pen.clip();
      pen.globalAlpha = seen.length > 1500 ? 0.45 : 0.8;
      for (const message of seen) stroke(pen, message, 1.3);
      pen.restore();
      return seen.length;
    }

    function stroke(pen, message, thick) {
      const kind = data.kinds[message[0]], [x1, y1, x2, y2] = ends(message);
      pen.strokeStyle = pen.fillStyle = colour(kind.colour);
      pen.lineWidth = message[0] === 0 ? thick + 0.9 : thick;
      pen.setLineDash(kind.dash ? kind.dash.split(" ").map(Number) : []);
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
      pen.stroke();
      pen.setLineDash([]);
      if (message[5] === NOT_ARRIVING) {
        pen.beginPath();
        pen.moveTo(x2 - 3, y2 - 3); pen.lineTo(x2 + 3, y2 + 3); pen.moveTo(x2 + 3, y2 - 3); pen.lineTo(x2 - 3, y2 + 3);
        pen.stroke();
      } else if (to - from < 1500) {
        pen.beginPath();
        pen.arc(x2, y2, 2.2, 0, 7);
        pen.fill();
      }
      hits.push({ line: [x1, y1, x2, y2], message, text: words(message) });
    }

    function words(message) {
      const [kind, view, sender, receiver, , took, size] = message, about = view ? `, view ${view}` : "";
      const way = took === NOT_ARRIVING ? "was not received" : took === NOT_LEAVING ? "was seen only by the receiver" : `took ${(took / 1000).toFixed(2)} ms`;
      return [`${data.kinds[kind].name}${about}: ${data.lanes[sender].name} → ${data.lanes[receiver].name}`, `${seconds(message.at)}, ${way}, ${size.toLocaleString("en")} bytes`];
    }

    function drawPointed(pen) {
      if (pointed.message) {
        pen.save();
        stroke(pen, pointed.message, 3);
        pen.restore();
      } else if (pointed.box) {
        const [x1, y1, x2, y2] = pointed.box;
        pen.strokeStyle = colour("ink");
        pen.lineWidth = 1;
        pen.strokeRect(Math.round(x1) - 0.5, Math.round(y1) - 0.5, Math.round(x2 - x1) + 1, Math.round(y2 - y1) + 1);
      }
    }

    function drawCursor(pen, height) {
      if (links.at === null || links.at < from || links.at > to) return;
      pen.fillStyle = colour("ink");
      pen.fillRect(Math.round(x(links.at)), TOP - 8, 1, height - TOP);
    }

    function drawOverview() {
      const pen = prepare(overview, OVERVIEW), whole = (ms) => left + Math.max(0, ms - data.begun) / (data.duration - data.begun) * (width - left - 8);
      pen.fillStyle = colour("code");
      pen.fillRect(left, 0, width - left - 8, OVERVIEW);
      let covered = 0;
      for (const fault of byBeginning) {
        const start = Math.max(covered, whole(fault.from)), end = Math.max(whole(fault.to), whole(fault.from) + (byBeginning.length > COMB ? 1 : 2));
        pen.fillStyle = colour("hatch");
        if (end > start) pen.fillRect(start, 0, end - start, OVERVIEW);
        if (byBeginning.length > COMB) covered = Math.max(covered, end);
      }
      pen.fillStyle = colour("c2");
      for (const [at] of data.lanes[0]?.blocks ?? []) pen.fillRect(whole(at), 12, 1, OVERVIEW - 16);
      pen.fillStyle = colour("focus");
      for (const window of data.windows) pen.fillRect(whole(window.from), 2, Math.max(2, whole(window.to) - whole(window.from)), 4);
      pen.fillStyle = colour("ink");
      pen.globalAlpha = 0.12;
      pen.fillRect(whole(from), 0, Math.max(2, whole(to) - whole(from)), OVERVIEW);
      pen.globalAlpha = 1;
      pen.strokeStyle = colour("ink-2");
      pen.strokeRect(whole(from) + 0.5, 0.5, Math.max(2, whole(to) - whole(from) - 1), OVERVIEW - 1);
    }

    function tell(drawn) {
      details.replaceChildren();
      const strong = document.createElement("strong"), rest = document.createElement("span");
      if (pointed) {
        strong.textContent = pointed.text[0];
        rest.textContent = ` · ${pointed.text[1]}`;
      } else {
        strong.textContent = `${seconds(from)} to ${seconds(to)}${data.unit ? ` (${data.unit})` : ""}`;
        const messages = drawn ? ` · ${drawn.toLocaleString("en")} messages` : data.windows.length ? " · zoom into a recorded window for its messages" : "";
        rest.textContent = `${messages} · drag to move, Ctrl and wheel or pinch to zoom, point or tap for details`;
      }
      details.append(strong, rest);
    }

    function distance(px, py, [x1, y1, x2, y2]) {
      const dx = x2 - x1, dy = y2 - y1, along = dx || dy ? ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy) : 0;
      const share = Math.max(0, Math.min(1, along));
      return Math.hypot(px - x1 - share * dx, py - y1 - share * dy);
    }

    function find(px, py) {
      let best = null, nearest = HIT_PIXELS;
      for (const hit of hits) {
        if (hit.line) {
          const away = distance(px, py, hit.line);
          if (away < nearest) { nearest = away; best = hit; }
        }
      }
      if (best) return best;
      const inside = hits.filter((hit) => hit.box && px >= hit.box[0] && px <= hit.box[2] && py >= hit.box[1] && py <= hit.box[3]);
      return inside.sort((one, other) => other.rank - one.rank)[0] ?? null;
    }

    function point(event) {
      const box = canvas.getBoundingClientRect();
      const found = find(event.clientX - box.left, event.clientY - box.top);
      if (found?.text.join() !== pointed?.text.join()) { pointed = found; draw(); }
      const at = time(event.clientX - box.left);
      links.point(at >= from && at <= to ? at : null);
      return found;
    }

    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event.clientX);
      moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (before === undefined) { point(event); return; }
      const scale = (to - from) / (width - left - 8);
      if (pointers.size === 1) {
        moved += Math.abs(event.clientX - before);
        show(from - (event.clientX - before) * scale, to - (event.clientX - before) * scale);
      } else {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const apart = Math.abs(before - other), now = Math.abs(event.clientX - other);
        const box = canvas.getBoundingClientRect();
        moved += 9;
        if (apart > 4 && now > 4) zoom(apart / now, time((event.clientX + other) / 2 - box.left));
      }
      pointers.set(event.pointerId, event.clientX);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
      pointers.delete(event.pointerId);
      if (name === "pointerup" && moved < 5) {
        const found = point(event);
        if (found?.window) show(found.window.from, found.window.to);
      }
    });
    canvas.addEventListener("pointerleave", () => {
      if (pointed && !pointers.size) { pointed = null; draw(); }
      links.point(null);
    });
    links.pointed = draw;
    links.chosen = (ms) => show(ms - (to - from) / 2, ms + (to - from) / 2);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.0018), time(event.clientX - canvas.getBoundingClientRect().left));
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => zoom(0.4, time(event.clientX - canvas.getBoundingClientRect().left)));
    const acts = {
      whole: () => show(data.begun, data.duration),
      in: () => zoom(0.5),
      out: () => zoom(2),
      back: () => show(from - (to - from) * 0.4, to - (to - from) * 0.4),
      on: () => show(from + (to - from) * 0.4, to + (to - from) * 0.4),
    };
    const keys = { ArrowLeft: "back", ArrowRight: "on", "+": "in", "=": "in", "-": "out", "0": "whole", Escape: "whole" };
    canvas.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      acts[keys[event.key]]();
    });
    for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => acts[button.dataset.zoom]());
    select?.addEventListener("change", () => {
      const window = data.windows[+select.value];
      if (select.value !== "" && window) show(window.from, window.to);
      select.value = "";
    });
    for (const button of document.querySelectorAll("[data-kind]")) button.addEventListener("click", () => {
      const kind = data.kinds.findIndex(({ name }) => name === button.dataset.kind);
      if (!hiddenKinds.delete(kind)) hiddenKinds.add(kind);
      button.setAttribute("aria-pressed", String(!hiddenKinds.has(kind)));
      pointed = null;
      draw();
    });
    function jump(event) {
      const box = overview.getBoundingClientRect(), span = to - from;
      const at = data.begun + (event.clientX - box.left - left) / (width - left - 8) * (data.duration - data.begun);
      show(at - span / 2, at + span / 2);
    }
    overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); jump(event); });
    overview.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
    new ResizeObserver(() => draw()).observe(canvas.parentElement);
    stampedeTheme.onChange(draw);
  }
})();
