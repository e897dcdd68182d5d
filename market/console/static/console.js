// Small parts of pages: local times, copy buttons, charts, live parts. Pages work without them.
"use strict";

const LATE_MS = 15000;
const UNSEEN_MS = 10000; // a change that is this much older than the page is on it
const localTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }); // seconds in the title

function prepare(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([data-local])")) {
    element.textContent = localTime.format(new Date(element.dateTime));
    element.dataset.local = "";
  }
  for (const element of root.querySelectorAll("[data-unix]:not([data-local])")) {
    const moment = new Date(Number(element.dataset.unix) * 1000);
    element.title = moment.toISOString();
    element.textContent = localTime.format(moment);
    element.dataset.local = "";
  }
  for (const element of root.querySelectorAll("[data-chart]:not([data-drawn])")) draw(element);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function draw(element) {
  if (!window.uPlot || !element.clientWidth) return;
  element.dataset.drawn = "";
  element.replaceChildren();
  const { x, y, names } = JSON.parse(element.dataset.chart);
  const over = element.dataset.over;
  const tones = ["accent", "warn", "good", "bad", "muted"];
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  const lines = names.map((label, at) => ({
    label, stroke: colour(tones[at % tones.length]), width: 2, dash: at ? [6, 2 + 2 * at] : undefined, points: { show: x.length < 3 },
  }));
  const size = { width: element.clientWidth, height: 240 };
  const scales = { x: { time: !over } };
  const first = over ? { label: over, value: (_, number) => number ?? "--" } : {};
  new uPlot({ ...size, scales, series: [first, ...lines], axes: [axis, { ...axis, size: 70 }] }, [x, ...y.map((line) => line.map((v) => v === null ? null : Number(v)))], element);
}

function redraw() {
  for (const element of document.querySelectorAll("[data-chart]")) {
    delete element.dataset.drawn;
    draw(element);
  }
}

async function copy(button) {
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1200);
}

// Live parts: a page with #live loads that part again after each change. It says when no tick came for long, or when
// that load failed. Hidden pages, and those where the person presses a button or fills in a form of it, load it later.
function watch() {
  const state = document.getElementById("live-state");
  if (!document.getElementById("live") || !state) return;
  let last = Date.now(), shown = null, loading = null, failed = false;
  const show = () => {
    const late = failed || Date.now() - last > LATE_MS;
    state.hidden = false;
    state.classList.toggle("stale", late);
    state.textContent = late ? `Stale since ${localTime.format(last)}` : "Live";
  };
  const isUsed = () => document.activeElement.closest("#live form") || document.querySelector("#live :active");
  const waits = () => document.hidden || isUsed();
  const load = (change) => {
    loading = change;
    htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerHTML" })
      .catch(() => {}) // the next tick tries again
      .finally(() => { loading = null; });
  };
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target.id !== "live" || !detail.shouldSwap) return;
    if (new URL(detail.xhr.responseURL).pathname !== location.pathname) location.reload(); // the session has ended
    else if (!waits()) return void (shown = loading);
    detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.target?.id !== "live") return;
    failed = !detail.successful;
    show();
  });
  const source = new EventSource("/console/live");
  source.addEventListener("tick", (event) => {
    const tick = JSON.parse(event.data);
    if (!failed) last = Date.now();
    const isRecent = Date.parse(tick.changed_at) >= Date.parse(state.dataset.renderedAt) - UNSEEN_MS;
    if (shown === null && !isRecent) shown = tick.change;
    if (tick.change !== shown && loading === null && !waits()) load(tick.change);
    show();
  });
  setInterval(show, 2000);
  addEventListener("pagehide", () => source.close());
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
document.addEventListener("htmx:afterSwap", () => prepare(document)); // before it is shown, so that nothing moves later
document.addEventListener("DOMContentLoaded", () => {
  prepare(document);
  watch();
  const present = document.querySelector(".side [aria-current]"), side = present && present.closest(".side");
  if (side) side.scrollLeft = present.offsetLeft - side.offsetLeft - (side.clientWidth - present.offsetWidth) / 2; // narrow screens
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 150); });
