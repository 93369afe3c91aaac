"use strict";
(() => {
  const { byId, setText, make, number, compact, duration, tiles, connect, chart, svg } = dashboard;
  const MAX_POINTS = 480, POINT_EVERY_MS = 400, RATE_OVER_MS = 3000, BEHIND = 5, CONFIRM_MS = 5000, FOLLOW_MS = 2000, BETWEEN_REGIONS = 22, MIN_SPREAD = 10, LABEL_WIDTH = 56, LABEL_HEIGHT = 16, NAMES_SHOWN = 4;
  const STAGES = { starting: ["…", "Starting", "inconclusive"], running: ["▶", "Running", "pass"], ending: ["■", "Ending", "inconclusive"] };
  const CHECKS = {
    agreement: ["Agreement", (audit) => `compared to height ${number(audit.compared)}`, "compared"],
    state_roots: ["State roots", (audit) => `compared to height ${number(audit.compared)}${audit.reexecuted ? `, executed again to ${number(audit.reexecuted)}` : ""}`, "compared"],
    chain: ["Chain", (audit) => `books at height ${number(audit.ledger)}`, "ledger"],
    timers: ["Timers", (audit) => `books at height ${number(audit.ledger)}`, "ledger"],
    conservation: ["Conservation", (audit) => `books at height ${number(audit.ledger)}`, "ledger"],
    bounds: ["Bounds", (audit) => `books at height ${number(audit.ledger)}`, "ledger"],
    safety: ["Safety", (audit) => `certificates to height ${number(audit.blocks)}`, "blocks"],
  };
  const STATE_CLASS = { up: "up", down: "down", dead: "down", diverged: "down", absent: "absent" };

  let run = null, points = [], rows = [], nodes = [], place = null, newest = null;
  const charts = [
    [chart(byId("charts"), "Blocks a second", [""]), (points) => rates(points, "top")],
    [chart(byId("charts"), "Fires and transactions a second", ["fires", "transactions"]), (points) => rates(points, "fires", "transactions")],
    [chart(byId("charts"), "Timers", ["pending", "backlog"]), (points) => points.map((p) => [p.at_ms, p.pending_timers, p.backlog])],
    [chart(byId("charts"), "Use of the timer lane, %", [""]), (points) => points.map((p) => [p.at_ms, 100 * p.lane_share])],
    [chart(byId("charts"), "Basefee of a cycle", [""]), (points) => points.map((p) => [p.at_ms, p.basefee_cycle])],
    [chart(byId("charts"), "Basefee of a cycle of the timer lane", [""]), (points) => points.map((p) => [p.at_ms, p.basefee_lane_timer])],
  ];

  /** Growth per second of counters at each point, over the last few seconds. */
  function rates(points, ...names) {
    let from = 0;
    return points.map((point, position) => {
      while (from < position - 1 && point.at_ms - points[from].at_ms > RATE_OVER_MS) from++;
      const before = points[from], seconds = (point.at_ms - before.at_ms) / 1000;
      return [point.at_ms, ...names.map((name) => (seconds > 0 ? Math.max(0, (point[name] - before[name]) / seconds) : 0))];
    });
  }

  // --- the beginning ----------------------------------------------------------------------------------------------

  function begin(snapshot) {
    run = snapshot.run;
    points = snapshot.history.slice(-MAX_POINTS);
    document.title = `${run.scenario} · live testnet · Stampede`;
    setText(byId("title"), run.scenario);
    setText(byId("about"), `${run.validators.length} validators · seed ${run.seed} · commit ${run.commit.slice(0, 12)} · chain ${run.chain_id}`);
    makeRows();
    makeChoices();
    layOut();
    update(snapshot.now);
  }

  function makeRows() {
    const body = byId("validators");
    body.replaceChildren();
    rows = run.validators.map((validator) => {
      const row = body.appendChild(make("tr"));
      const name = make("th", "", validator.name);
      if (validator.byzantine.length) name.append(" ", make("span", "chip", "byzantine"));
      if (validator.external) name.append(" ", make("span", "chip plain", "external"));
      const cells = Array.from({ length: 6 }, (_, place) => make("td", place ? `num${place > 2 ? " wide-only" : ""}` : "state-word"));
      const show = make("button", "small", "Log");
      show.type = "button";
      show.addEventListener("click", () => { byId("log-name").value = `host-${validator.host}`; showLog(); byId("log-heading").scrollIntoView(); });
      const last = make("td");
      last.append(show);
      row.append(name, make("td", "wide-only", validator.region ?? "–"), make("td", "wide-only", String(validator.host)), ...cells, last);
      return cells;
    });
  }

  function makeChoices() {
    const target = byId("fault-target"), kind = byId("fault-kind"), log = byId("log-name"), chosen = [target, kind, log].map((each) => each.value);
    const hosts = [...new Set(run.validators.map((validator) => validator.host))];
    target.replaceChildren(new Option("the leader", "leader"), ...run.validators.map((validator) => new Option(validator.name)));
    kind.replaceChildren(...run.fault_forms.map((form, position) => new Option(form.kind.replaceAll("_", " "), position)));
    const carried = (host) => {
      const names = run.validators.filter((validator) => validator.host === host).map((validator) => validator.name);
      return names.length <= NAMES_SHOWN ? names.join(", ") : `${names.slice(0, NAMES_SHOWN - 1).join(", ")} and ${names.length - NAMES_SHOWN + 1} more`;
    };
    log.replaceChildren(...hosts.map((host) => new Option(`host ${host}: ${carried(host)}`, `host-${host}`)), new Option("the load generator", "locust"));
    [target, kind, log].forEach((each, position) => { if (chosen[position]) each.value = chosen[position]; });
    fillFault();
  }

  // --- updates ----------------------------------------------------------------------------------------------------

  function update(state) {
    newest = state;
    const last = points[points.length - 1];
    if (!last || state.at_ms - last.at_ms >= POINT_EVERY_MS) {
      points.push(state);
      if (points.length > MAX_POINTS) points.shift();
      for (const [each, read] of charts) each.draw(read(points));
    }
    const [sign, word, className] = STAGES[state.stage];
    byId("stage").className = `badge ${className}`;
    setText(byId("stage-sign"), sign);
    setText(byId("stage-word"), word);
    showFigures(state);
    showGraph(state);
    showChecks(state.audit);
    showBlocks(state.blocks);
    showFaults(state.faults);
    showRows(state.validators);
    const tiers = state.tiers;
    setText(byId("tiers"), tiers ? `Pending timers by tier: ${number(tiers.due)} due (the backlog), ${number(tiers.ring)} in the ring, ${number(tiers.epoch)} in the epoch queue, ${number(tiers.overflow)} in the overflow tree.` : "");
    showLines(byId("problems"), state.problems, "p", "alert");
    showLines(byId("notices"), state.notices, "li");
    setText(byId("load-stage"), state.load === "none" ? "no load" : `load: ${state.load}`);
    byId("load-off").disabled = !["starting", "running"].includes(state.load);
    byId("load-on").disabled = !["stopped", "ended"].includes(state.load);
  }

  function showFigures(state) {
    const recent = points.filter((point) => state.at_ms - point.at_ms <= RATE_OVER_MS);
    const [, blocks, fires, transactions] = rates(recent.length > 1 ? recent : points.slice(-2), "top", "fires", "transactions").at(-1) ?? [0, 0, 0, 0];
    tiles(byId("tiles"), [
      ["Height", number(state.height)],
      ["View", number(state.view)],
      ["Blocks a second", compact(Number(blocks.toFixed(1)))],
      ["Fires a second", compact(Number(fires.toFixed(1)))],
      ["Transactions a second", compact(Number(transactions.toFixed(1)))],
      ["Fires", compact(state.fires)],
      ["Failed fires", compact(state.audit.failed?.fire ?? 0)],
      ["Transactions", compact(state.transactions)],
      ["Pending timers", compact(state.pending_timers)],
      ["Backlog", compact(state.backlog)],
      ["Timer lane used", `${Math.round(100 * state.lane_share)} %`],
      ["Basefee of a cycle", compact(state.basefee_cycle)],
      ["Since the start", duration(state.at_ms)],
    ]);
  }

  function showChecks(audit) {
    const body = byId("checks");
    setText(byId("audited"), !audit.blocks ? "No block was compared yet." : audit.compared ? `${number(audit.blocks)} blocks were fetched, and compared up to height ${number(audit.compared)}.` : `${number(audit.blocks)} blocks were fetched. Not every validator was asked for its own yet.`);
    for (const [name, [title, words, reach]] of Object.entries(CHECKS)) {
      let row = body.querySelector(`[data-check="${name}"]`);
      if (!row) {
        row = body.appendChild(make("tr"));
        row.dataset.check = name;
        const state = make("td", "state-word");
        state.append(make("span", "sign"), make("span"));
        row.append(make("th", "", title), state, make("td", "quiet small"));
      }
      const count = audit.violations?.[name] ?? 0, isReached = (audit[reach] ?? 0) > 0;
      const cell = row.cells[1];
      cell.className = `state-word ${count ? "fail" : isReached ? "pass" : "idle"}`;
      setText(cell.firstChild, count ? "✕" : isReached ? "✓" : "·");
      setText(cell.lastChild, count ? `${number(count)} violations` : isReached ? "holds" : "not yet");
      setText(row.cells[2], isReached ? words(audit) : "");
    }
    showLines(byId("violations"), audit.told ?? [], "li");
  }

  /** A list of texts, the newest last; it is touched only if it changed. */
  function showLines(list, lines, tag, className = "") {
    const key = lines.join("\n");
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(...lines.map((line) => make(tag, className, line)));
    list.scrollTop = list.scrollHeight;
  }

  function showBlocks(blocks) {
    const strip = byId("blocks"), most = Math.max(1, ...blocks.map((block) => Math.max(block[3], block[4])));
    const ordered = [...blocks].sort((a, b) => a[0] - b[0]);
    while (strip.children.length > ordered.length) strip.lastChild.remove();
    ordered.forEach(([height, view, at, transactions, fires], position) => {
      let bar = strip.children[position];
      if (!bar) {
        bar = strip.appendChild(make("div", "block"));
        bar.append(make("i", "fires"), make("i", "transactions"));
      }
      const key = `${height}/${view}/${most}`;
      if (bar.dataset.key === key) return;
      bar.dataset.key = key;
      bar.title = `height ${height} · view ${view} · ${duration(at)}\n${transactions} transactions · ${fires} fires`;
      bar.firstChild.style.height = `${(100 * fires / most).toFixed(1)}%`;
      bar.lastChild.style.height = `${(100 * transactions / most).toFixed(1)}%`;
      bar.classList.toggle("skipped", position > 0 && view > ordered[position - 1][1] + 1);
    });
  }

  function showFaults(faults) {
    const key = JSON.stringify(faults), table = byId("fault-table");
    if (table.dataset.key === key) return;
    table.dataset.key = key;
    table.hidden = !faults.length;
    byId("no-faults").hidden = faults.length > 0;
    byId("faults").replaceChildren(...faults.map((fault) => {
      const row = make("tr");
      const planned = fault.at_height !== null ? `height ${number(fault.at_height)}` : duration(fault.at_ms);
      const isOn = fault.begun_ms !== null && fault.ended_ms === null;
      const name = make("th", isOn ? "fail" : "", `${fault.kind.replaceAll("_", " ")} of ${fault.target}`);
      const cells = [planned, fault.begun_ms === null ? "" : duration(fault.begun_ms), isOn ? "goes on" : fault.ended_ms === null ? "" : duration(fault.ended_ms), fault.evidence];
      row.append(name, ...cells.map((text, place) => {
        const cell = make("td", place === 3 ? "whole" : "", text);
        cell.dataset.label = ["Planned", "Began", "Ended", "Seen"][place];
        return cell;
      }));
      return row;
    }));
  }

  function showRows(validators) {
    validators.forEach(([state, height, view, notarized, nullified, finalized], index) => {
      const cells = rows[index];
      setText(cells[0], state);
      cells[0].className = `state-word ${STATE_CLASS[state] ?? "joining"}`;
      [height, view, notarized, finalized, nullified].forEach((value, place) => setText(cells[place + 1], value ? number(value) : value === null ? "–" : "0"));
    });
  }

  // --- the graph --------------------------------------------------------------------------------------------------

  /** Places each region on an ellipse, and its validators on a circle around that place. */
  function layOut() {
    const box = byId("graph"), width = Math.max(280, box.clientWidth), isNarrow = width < 480;
    const regions = [...run.regions.names], groups = new Map(regions.map((name) => [name, []]));
    run.validators.forEach((validator, index) => {
      const name = validator.region ?? "";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(index);
    });
    const filled = [...groups].filter(([, members]) => members.length), height = Math.round(Math.min(width * (isNarrow ? 1.25 : 0.66), 480));
    const centre = [width / 2, height / 2], isOne = filled.length === 1, margin = isNarrow ? 26 : 40;
    const outer = [width / 2 - margin, height / 2 - margin];
    const biggest = Math.max(...filled.map(([, members]) => members.length));
    const regionAngle = (place) => (2 * Math.PI * place) / filled.length - Math.PI / 2 - (filled.length === 2 ? Math.PI / 2 : 0);
    const centreOf = (position, spread) => [
      centre[0] + (outer[0] - spread) * Math.cos(regionAngle(position)), centre[1] + (outer[1] - spread - 8) * Math.sin(regionAngle(position)) + 6,
    ];
    /** Whether the circles of two neighbouring regions do not touch. */
    const isApart = (spread) => filled.every((_, position) => {
      const [one, other] = [centreOf(position, spread), centreOf((position + 1) % filled.length, spread)];
      return Math.hypot(one[0] - other[0], one[1] - other[1]) >= 2 * spread + BETWEEN_REGIONS;
    });
    let spread = Math.min(Math.min(...outer) * 0.62, Math.max(26, biggest * 4.4));
    while (!isOne && spread > MIN_SPREAD && !isApart(spread)) spread -= 2;
    place = { centres: new Map(), at: [], radius: 0 };
    filled.forEach(([name, members], position) => {
      const [x, y] = isOne ? centre : centreOf(position, spread);
      const reach = isOne ? outer : members.length > 1 ? [spread, spread] : [0, 0];
      place.centres.set(name, [x, y, reach[1]]);
      members.forEach((index, turn) => {
        const angle = (2 * Math.PI * turn) / members.length - Math.PI / 2;
        place.at[index] = [x + reach[0] * Math.cos(angle), y + reach[1] * Math.sin(angle)];
      });
    });
    let gap = Infinity;
    for (let one = 0; one < place.at.length; one++) for (let other = one + 1; other < place.at.length; other++)
      gap = Math.min(gap, Math.hypot(place.at[one][0] - place.at[other][0], place.at[one][1] - place.at[other][1]));
    place.radius = Math.max(3.5, Math.min(15, gap * 0.36));
    drawGraph(box, width, height);
  }

  /** The place of a latency on the line between two regions: its middle, or next to it if a label of a line that crosses it is there. */
  function labelPlace(a, b, length, labels) {
    const isClear = (end, part) => part * length > end[2] + LABEL_WIDTH / 2;
    for (const part of [0.5, 0.4, 0.6, 0.33, 0.67]) {
      const [x, y] = [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part - 3];
      const isFree = labels.every(([otherX, otherY]) => Math.abs(x - otherX) > LABEL_WIDTH || Math.abs(y - otherY) > LABEL_HEIGHT);
      if (isFree && (part === 0.5 || (isClear(a, part) && isClear(b, 1 - part)))) return [x, y];
    }
    return null;
  }

  function drawGraph(box, width, height) {
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "graph", role: "img", "aria-label": "Validators by region; the table below has the same facts" });
    const named = [...place.centres].filter(([name]) => name), labels = [];
    for (let one = 0; one < named.length; one++) for (let other = one + 1; other < named.length; other++) {
      const [[first, a], [second, b]] = [named[one], named[other]];
      svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: "between" }, drawing);
      const latency = run.regions.latency_ms[run.regions.names.indexOf(first)][run.regions.names.indexOf(second)];
      const length = Math.hypot(a[0] - b[0], a[1] - b[1]), at = labelPlace(a, b, length, labels);
      if (named.length <= 6 && length - a[2] - b[2] > LABEL_WIDTH && at) labels.push([...at, latency]);
    }
    for (const [name, [x, y, reach]] of named) svg("text", { x, y: reach > 30 ? y + 4 : y - reach - place.radius - 6, class: "region", "text-anchor": "middle" }, drawing).textContent = name;
    place.spokes = svg("path", { class: "spokes" }, drawing);
    for (const [x, y, latency] of labels) svg("text", { x, y, class: "latency", "text-anchor": "middle" }, drawing).textContent = `${compact(latency)} ms`;
    place.leader = svg("circle", { r: place.radius + 6, class: "leads", cx: -99, cy: -99 }, drawing);
    const notes = svg("g");  // drawn above all validators
    nodes = run.validators.map((validator, index) => {
      const [x, y] = place.at[index], group = svg("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, class: "node" }, drawing);
      const title = svg("title", {}, group);
      svg("circle", { r: place.radius, class: "body" }, group);
      svg("circle", { r: place.radius + 2.5, class: "vote" }, group);
      if (place.radius >= 9) svg("text", { "text-anchor": "middle", y: 4, class: "number" }, group).textContent = index;
      const note = svg("text", { "text-anchor": "middle", x: x.toFixed(1), y: (y + place.radius + 15).toFixed(1), class: "note" }, notes);
      return { group, title, note, key: "" };
    });
    drawing.append(notes);
    box.replaceChildren(drawing);
    place.shownLeader = undefined;
    if (newest) showGraph(newest);
  }

  function showGraph(state) {
    setText(byId("graph-count"), `${state.validators.filter(([word]) => word === "up").length} of ${state.validators.length} up`);
    if (state.leader !== place.shownLeader) {
      place.shownLeader = state.leader;
      const [x, y] = place.at[state.leader] ?? [-99, -99];
      place.leader.setAttribute("cx", x);
      place.leader.setAttribute("cy", y);
      place.spokes.setAttribute("d", state.leader === null ? "" : place.at.map(([toX, toY]) => `M${x.toFixed(1)} ${y.toFixed(1)}L${toX.toFixed(1)} ${toY.toFixed(1)}`).join(""));
    }
    state.validators.forEach(([word, height, view, notarized, nullified, finalized], index) => {
      const node = nodes[index], best = Math.max(notarized, nullified, finalized);
      const vote = !best ? "" : finalized === best ? "finalize" : nullified === best ? "nullify" : "notarize";
      const behind = height === null ? 0 : state.height - height;
      const key = `${STATE_CLASS[word] ?? "joining"} ${vote}`;
      if (node.key !== key) {
        node.key = key;
        node.group.setAttribute("class", `node ${key}`);
      }
      setText(node.note, word !== "up" ? word : behind >= BEHIND ? `−${number(behind)}` : "");
      setText(node.title, `${run.validators[index].name}: ${word}, height ${number(height)}, view ${number(view)}`);
    });
  }

  new ResizeObserver(() => { if (run && Math.abs(byId("graph").clientWidth - (place?.width ?? 0)) > 1) { layOut(); place.width = byId("graph").clientWidth; } }).observe(byId("graph"));

  // --- steering ---------------------------------------------------------------------------------------------------

  const given = /[#&]token=([\w-]+)/.exec(location.hash);
  if (given) {
    byId("token").value = given[1];
    history.replaceState(null, "", location.pathname);  // it is not left in the address bar
  }
  byId("token-form").addEventListener("submit", (event) => event.preventDefault());

  function authorized(options = {}) {
    return { ...options, cache: "no-store", headers: { Authorization: `Bearer ${byId("token").value.trim()}` } };
  }

  async function post(path, body, describe) {
    const answer = byId("answer");
    answer.className = "small answer";
    setText(answer, "…");
    try {
      const response = await fetch(path, authorized({ method: "POST", body: body === null ? "" : JSON.stringify(body) }));
      const page = await response.json();
      answer.classList.add(response.ok ? "pass" : "fail");
      setText(answer, response.ok ? describe(page) : page.error);
    } catch {
      answer.classList.add("fail");
      setText(answer, "The testnet does not answer.");
    }
  }

  byId("load-off").addEventListener("click", () => post("load", { on: false }, () => "The load stops."));
  byId("load-on").addEventListener("click", () => post("load", { on: true }, () => "The load starts."));
  byId("stop").addEventListener("click", () => {
    const button = byId("stop");
    if (button.dataset.asked) {
      post("stop", null, () => "The run ends: the load stops, the validators drain, the run is judged.");
      delete button.dataset.asked;
      setText(button, "End the run");
      return;
    }
    button.dataset.asked = "yes";
    setText(button, "End the run now?");
    setTimeout(() => { delete button.dataset.asked; setText(button, "End the run"); }, CONFIRM_MS);
  });

  function fillFault() {
    const form = run?.fault_forms[byId("fault-kind").value];
    if (form) byId("fault-fields").value = JSON.stringify(form).replaceAll('"TARGET"', JSON.stringify(byId("fault-target").value)).replaceAll(",", ", ").replaceAll(":", ": ");
  }
  byId("fault-kind").addEventListener("change", fillFault);
  byId("fault-target").addEventListener("change", fillFault);
  byId("fault-form").addEventListener("submit", (event) => {
    event.preventDefault();
    let fields = null;
    try { fields = JSON.parse(byId("fault-fields").value); } catch (error) {
      byId("answer").className = "small answer fail";
      setText(byId("answer"), `No JSON: ${error.message}`);
      return;
    }
    post("faults", fields, (fault) => `Added: ${fault.kind} at ${fault.at_height ? `height ${number(fault.at_height)}` : duration(fault.at_ms)}.`);
  });

  // --- logs -------------------------------------------------------------------------------------------------------

  let following = null;
  async function showLog() {
    const log = byId("log"), note = byId("log-note");
    try {
      const response = await fetch(`logs/${byId("log-name").value}`, authorized());
      if (!response.ok) { setText(note, (await response.json()).error); return; }
      const text = await response.text(), isAtEnd = log.hidden || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.hidden = false;
      setText(log, text || "(empty)");
      setText(note, "");
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    } catch { setText(note, "The testnet does not answer."); }
  }
  byId("log-show").addEventListener("click", showLog);
  byId("log-name").addEventListener("change", showLog);
  byId("log-follow").addEventListener("change", () => {
    clearInterval(following);
    if (byId("log-follow").checked) { showLog(); following = setInterval(() => { if (!document.hidden) showLog(); }, FOLLOW_MS); }
  });

  stampedeTheme.apply();
  connect(begin, update);
})();
