"use strict";
// What needs a script: live values, selecting in charts, keys, copying. Everything else works without.
(() => {
  const $ = (id) => document.getElementById(id);
  const say = (text) => { $("said").textContent = text; };
  document.querySelectorAll("[data-script]").forEach((e) => { e.hidden = false; });

  // --- how it looks: light, dark or as the system; times here or in UTC ---
  const kept = {
    get: (name) => { try { return localStorage.getItem(name) || ""; } catch { return ""; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* a private window */ } },
  };
  const shade = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    if ($("theme")) $("theme").textContent = "theme: " + (theme || "system");
  };
  const THEMES = { "": "light", light: "dark", dark: "" };
  shade(kept.get("theme"));
  $("theme")?.addEventListener("click", () => {
    const next = THEMES[kept.get("theme")] ?? "";
    kept.set("theme", next); shade(next); say("theme: " + (next || "system"));
  });
  const two = (n) => String(n).padStart(2, "0");
  function local(on) {
    document.querySelectorAll("time[datetime]").forEach((e) => {
      e.dataset.utc ??= e.textContent;
      const t = new Date(e.dateTime);
      const clock = [t.getHours(), t.getMinutes(), t.getSeconds()].map(two).join(":");
      const day = [t.getFullYear(), two(t.getMonth() + 1), two(t.getDate())].join("-");
      const today = new Date().toDateString() === t.toDateString();
      e.textContent = on ? (today ? clock : day + " " + clock) : e.dataset.utc;
    });
    if (!$("zone")) return;
    $("zone").textContent = on ? "times: here" : "times: UTC";
    $("times").textContent = on ? "Times are those of this device; charts and addresses are UTC" : "All times are UTC";
  }
  if (kept.get("zone")) local(true);
  $("zone")?.addEventListener("click", () => {
    const on = !kept.get("zone");
    kept.set("zone", on ? "here" : ""); local(on); say(on ? "local times" : "times in UTC");
  });

  // --- live values: one stream a page; a hidden tab has none ---
  const live = document.body.dataset.live;
  const events = $("events"), follow = $("follow");
  const KEPT = 500;
  let stream = null, lost = null;

  function status(text) { let e = $("link"); if (e) e.textContent = text; }
  function cell(row, text, href, mono) {
    const td = row.insertCell();
    if (href) {
      const a = document.createElement("a");
      a.href = href; a.textContent = text; if (mono) a.className = "mono";
      td.append(a);
    } else td.textContent = text;
    return td;
  }
  const short = (id) => id.length > 12 ? id.slice(0, 4) + "…" + id.slice(-4) : id;
  const brief = (id) => /^c0[0-9a-f]{30}$/.test(id) ? id.slice(0, 4) + "…" + id.slice(-13, -8) : short(id);
  function addEvent(e) {
    const row = events.tBodies[0].insertRow(0);
    cell(row, e.offset).className = "n";
    cell(row, new Date(e.at_ms).toISOString().slice(11, 19));
    cell(row, e.kind.replaceAll("_", " "));
    cell(row, e.queue_name || short(e.queue), e.queue && "queues/" + e.queue);
    cell(row, brief(e.message), e.message && e.queue &&
      "messages/" + encodeURIComponent(e.message) + "?queue=" + e.queue, true);
    cell(row, (e.actor_name || short(e.actor)) + " " + e.dialect);
    const td = row.insertCell(); td.className = "text";
    const d = document.createElement("details"), s = document.createElement("summary"),
      c = document.createElement("code");
    s.textContent = e.says || "all of it"; c.textContent = e.json; d.append(s, c); td.append(d);
    if (e.back && events.dataset.back) {
      const a = document.createElement("a");
      a.href = "queues/" + e.queue + "/settings?event=" + e.offset; a.textContent = "Set back…"; td.append(a);
    }
  }
  function open() {
    if (!live || stream || document.hidden) return;
    if (events && follow.getAttribute("aria-pressed") !== "true") return;
    stream = new EventSource(events ? live + "&upto=" + events.dataset.upto : live);
    stream.onopen = () => { lost = null; status(""); };
    stream.onerror = () => {
      lost = lost || new Date().toISOString().slice(11, 19);
      status("not connected since " + lost + ", trying again");
    };
    stream.addEventListener("values", (m) => {
      for (const [id, text] of Object.entries(JSON.parse(m.data))) {
        const e = $(id);
        if (!e) continue;
        const at = e.firstChild;
        if (at && at.nodeType === 3) { if (at.data === text) continue; at.data = text; }
        else e.prepend(text);
        e.classList.remove("changed"); void e.offsetWidth; e.classList.add("changed");
      }
    });
    stream.addEventListener("rows", (m) => {
      const got = JSON.parse(m.data);
      if (got.reload) location.reload();
      if (!events) return;
      events.dataset.upto = m.lastEventId;
      $("none")?.remove();
      got.rows.forEach(addEvent);
      while (events.tBodies[0].rows.length > KEPT) events.tBodies[0].deleteRow(-1);
      $("more").textContent = got.more ? got.more.toLocaleString("en") + " more in this second" : "";
    });
    stream.addEventListener("gone", () => { close(); setTimeout(open, 1000); });
  }
  function close() { stream?.close(); stream = null; }
  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  follow?.addEventListener("click", () => {
    const on = follow.getAttribute("aria-pressed") !== "true";
    follow.setAttribute("aria-pressed", on);
    follow.textContent = on ? "Pause" : "Follow live";
    on ? open() : close();
    say(on ? "following" : "paused");
  });
  open();

  // --- selecting a span of a chart ---
  const chart = $("chart");
  if (chart && $("since")) {
    chart.parentElement.scrollLeft = chart.clientWidth;  // on a phone: now
    const { since, until, left, right } = chart.dataset;
    const at = (x) => {
      const box = chart.getBoundingClientRect();
      const place = (x - box.left) / box.width * chart.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (place - left) / (right - left)));
      return Math.round((+since + share * (until - since)) / 60000) * 60000;
    };
    const iso = (ms) => new Date(ms).toISOString().replace(":00.000Z", "Z");
    let from = null, box = null;
    const draw = (a, b) => {
      const x = (ms) => +left + (ms - since) / (until - since) * (right - left);
      box = box || chart.appendChild(document.createElementNS(chart.namespaceURI, "rect"));
      box.setAttribute("class", "chosen"); box.setAttribute("y", 12); box.setAttribute("height", 206);
      box.setAttribute("x", x(Math.min(a, b))); box.setAttribute("width", Math.abs(x(b) - x(a)));
      $("since").value = iso(Math.min(a, b)); $("until").value = iso(Math.max(a, b));
    };
    chart.addEventListener("pointerdown", (e) => { from = at(e.clientX); chart.setPointerCapture(e.pointerId); });
    chart.addEventListener("pointermove", (e) => { if (from !== null) draw(from, at(e.clientX)); });
    chart.addEventListener("pointerup", (e) => {
      const to = at(e.clientX), begun = from; from = null;
      if (begun !== null && Math.abs(to - begun) >= 60000) { draw(begun, to); $("since").form.submit(); }
    });
    // Shift with arrows moves one end of the span, a fortieth of the chart at a time; Enter shows it.
    const step = Math.max(1, Math.round((until - since) / 40 / 60000)) * 60000;
    let anchor = null, edge = null;
    chart.parentElement.addEventListener("keydown", (e) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (e.key === "Enter" && anchor !== null && anchor !== edge) $("since").form.submit();
      if (!e.shiftKey || !way) return;
      e.preventDefault();
      if (anchor === null) anchor = edge = way < 0 ? +until : +since;
      edge = Math.min(+until, Math.max(+since, edge + way * step));
      draw(anchor, edge); say(iso(Math.min(anchor, edge)) + " to " + iso(Math.max(anchor, edge)));
    });
  }

  // --- what is not JSON is said beside its field before it is sent; the server looks again ---
  document.querySelectorAll("[data-json]").forEach((field) => {
    const said = document.createElement("p"), kind = field.form.elements.kind;
    said.className = "problem"; said.id = field.id + "-json"; said.setAttribute("role", "status");
    field.after(said);
    const wrong = () => {
      const body = field.dataset.json === "kind";
      if (body ? kind.value !== "json" : !field.value.trim()) return "";
      try {
        const value = JSON.parse(field.value);
        return body || Object.prototype.toString.call(value) === "[object Object]" ? "" : "This is not a JSON object.";
      } catch (error) { return "This is not JSON: " + error.message + "."; }
    };
    const look = () => {
      said.textContent = wrong();
      field.setAttribute("aria-invalid", !!said.textContent);
      field.setAttribute("aria-describedby", said.id);
      return said.textContent;
    };
    let later = 0;
    field.addEventListener("input", () => { clearTimeout(later); later = setTimeout(look, 400); });
    kind?.addEventListener("change", look);  // not the field's: what moves under a click takes it
    field.form.addEventListener("submit", (e) => { if (look()) { e.preventDefault(); field.focus(); } });
  });

  // --- copying ---
  document.querySelectorAll("[data-copy]").forEach((button) => {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", () =>
      navigator.clipboard.writeText($(button.dataset.copy).textContent).then(() => say("copied")));
  });
  // A link that shows the same later: a time that ends now becomes two times.
  if (!navigator.clipboard) $("copy-link")?.remove();
  $("copy-link")?.addEventListener("click", () =>
    navigator.clipboard.writeText($("permalink")?.href ?? location.href).then(() => say("link copied")));

  // --- the lake: the last 20 questions of this browser; stopping the one that runs ---
  const box = $("sql");
  if (box) {
    let last = [];
    try { last = JSON.parse(kept.get("asked") || "[]"); } catch { last = []; }
    if (box.value && !$("sql-problem")) {
      last = [box.value, ...last.filter((each) => each !== box.value)].slice(0, 20);
      kept.set("asked", JSON.stringify(last));
    }
    for (const sql of last) {
      const li = document.createElement("li"), a = document.createElement("a");
      a.href = "?sql=" + encodeURIComponent(sql); a.textContent = sql.slice(0, 120);
      li.append(a); $("asked").append(li); $("asked").parentElement.hidden = false;
    }
    // What is too long for an address is posted.
    const long = $("long");
    if (long) long.hidden = true;
    box.form.addEventListener("submit", (e) => {
      if (long && e.submitter !== long && encodeURIComponent(box.value).length > 8000) {
        e.preventDefault(); box.form.requestSubmit(long); return;
      }
      $("stop").hidden = false; say("asking");
    });
    $("stop").addEventListener("click", () => { window.stop(); $("stop").hidden = true; say("stopped"); });
  }

  // --- a search that has found nothing yet goes on by itself ---
  const halt = $("halt"), on = halt && setTimeout(() => location.replace($("go-on").href), 100);
  halt?.addEventListener("click", () => { clearTimeout(on); window.stop(); halt.remove(); say("stopped"); });

  // --- trying again ---
  const retry = document.querySelector("[data-retry]");
  if (retry) setTimeout(() => location.reload(), 1000 * retry.dataset.retry);

  // --- keys ---
  let g = 0;
  const off = () => { if ($("keys-off")) $("keys-off").textContent = kept.get("keys") ? "Turn keys on" : "Turn keys off"; };
  off();
  $("keys-off")?.addEventListener("click", () => { kept.set("keys", kept.get("keys") ? "" : "off"); off(); });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=checkbox]),textarea,select")) return;
    if (kept.get("keys") && e.key !== "?") return;
    const go = { q: "nav-queues", e: "nav-events", l: "nav-lake", s: "nav-settings" }[e.key];
    if (e.key === "/" && $("find")) { e.preventDefault(); $("find").focus(); }
    else if (e.key === "g") g = Date.now();
    else if (go && Date.now() - g < 1500) $(go)?.click();
    else if (e.key === "j" || e.key === "k") {
      const links = [...document.querySelectorAll("tbody th a, tbody td:nth-child(4) a")];
      const here = links.indexOf(document.activeElement);
      links[Math.max(0, Math.min(links.length - 1, here + (e.key === "j" ? 1 : -1)))]?.focus();
    } else if (e.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
    else if (e.key === ".") ($("chosen")?.querySelector("button") ?? document.querySelector("main .bar button, main .bar .button"))?.focus();
    else if (e.key === "?") $("keys")?.showModal?.();
  });
})();
