"use strict";
(() => {
  const { byId, setText, make, number, compact, duration, tiles, connect, chart } = dashboard;
  const MAX_POINTS = 480, POINT_EVERY_MS = 1000, RATE_OVER_MS = 30000;
  const WORDS = ["passed", "failed", "undecided"], CLASSES = { failed: "fail", undecided: "inconclusive" }, SIGNS = { failed: "✕", undecided: "?" };
  let run = null, points = [];
  const ended = chart(byId("charts"), "Seeds that failed and that are undecided", ["failed", "undecided"]);
  const speed = chart(byId("charts"), "Seeds a minute", [""]);

  function begin(snapshot) {
    run = snapshot.run;
    points = snapshot.history.slice(-MAX_POINTS);
    document.title = `${run.title} · Stampede`;
    setText(byId("title"), run.title);
    setText(byId("about"), `${number(run.total)} seeds · commit ${run.commit.slice(0, 12)}`);
    update(snapshot.now);
  }

  /** Seeds a minute at each point, over the last half minute. */
  function rates() {
    let from = 0;
    return points.map((point, position) => {
      while (from < position - 1 && point.at_ms - points[from].at_ms > RATE_OVER_MS) from++;
      const before = points[from], minutes = (point.at_ms - before.at_ms) / 60000;
      return [point.at_ms, minutes > 0 ? (point.done - before.done) / minutes : 0];
    });
  }

  function update(state) {
    const last = points[points.length - 1], isOver = state.done >= run.total;
    if (!last || state.at_ms - last.at_ms >= POINT_EVERY_MS || isOver) {
      points.push(state);
      if (points.length > MAX_POINTS) points.shift();
      ended.draw(points.map((point) => [point.at_ms, point.failed, point.undecided]));
      speed.draw(rates());
    }
    const each = state.added ? state.at_ms / state.added : null, left = run.total - state.done;
    byId("stage").className = `badge ${state.failed ? "fail" : "pass"}`;
    setText(byId("stage-sign"), state.failed ? "✕" : "✓");
    setText(byId("stage-word"), state.failed ? `${number(state.failed)} failed` : isOver ? "No seed failed" : "No failure so far");
    tiles(byId("tiles"), [
      ["Seeds done", `${number(state.done)}`],
      ["Of", number(run.total)],
      ["Passed", number(state.passed)],
      ["Failed", number(state.failed)],
      ["Undecided", number(state.undecided)],
      ["Heights", compact(state.heights)],
      ["Fires", compact(state.fires)],
      ["Since the start", duration(state.at_ms)],
      ["Left, about", isOver ? "–" : each === null ? "…" : duration(each * left)],
    ]);
    const bar = byId("progress");
    bar.setAttribute("aria-valuemax", run.total);
    bar.setAttribute("aria-valuenow", state.done);
    WORDS.forEach((word, position) => { bar.children[position].style.width = `${(100 * state[word] / run.total).toFixed(2)}%`; });
    showKept(state.kept);
    const reached = Object.entries(state.reached).sort((a, b) => a[1] - b[1]);
    setText(byId("reached-count"), `${reached.filter(([, count]) => count).length} of ${reached.length} reached`);
    showCounts(byId("reached"), reached);
    showCounts(byId("faults"), Object.entries(state.faults).sort((a, b) => b[1] - a[1]));
  }

  /** Names with a count each, as chips; the list is touched only if it changed. */
  function showCounts(list, counts) {
    const key = JSON.stringify(counts);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(...(counts.length ? counts.map(([name, count]) => {
      const item = make("li", count ? "" : "never", name.replaceAll("_", " "));
      item.append(" ", make("b", "", count ? number(count) : "none yet"));
      return item;
    }) : [make("li", "quiet", "None so far.")]));
  }

  function showKept(kept) {
    const key = kept.map((each) => each.seed).join(), table = byId("kept-table");
    if (table.dataset.key === key) return;
    table.dataset.key = key;
    table.hidden = !kept.length;
    byId("no-kept").hidden = kept.length > 0;
    byId("kept").replaceChildren(...[...kept].reverse().map((each) => {
      const row = make("tr"), head = make("th"), state = make("td", `state-word ${CLASSES[each.word]}`), why = make("td", "whole", each.why);
      const name = each.has_report ? make("a", "", `seed ${each.seed}`) : make("span", "", `seed ${each.seed}`);
      if (each.has_report) name.href = `seeds/${each.seed}`;
      head.append(name);
      state.append(make("span", "sign", SIGNS[each.word]), each.word);
      why.append(make("code", "again", each.again));
      row.append(head, state, why);
      return row;
    }));
  }

  stampedeTheme.apply();
  connect(begin, update);
})();
