// Small parts of pages: local times, copy buttons, charts, live parts. Pages work without them.
"use strict";

const LATE_MS = 15000;
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
// that load failed, and then loads again at the next tick.
function watch() {
  const state = document.getElementById("live-state");
  if (!document.getElementById("live") || !state) return;
  let last = Date.now(), shown = null, asked = null, failed = false;
  const show = () => {
    const late = failed || Date.now() - last > LATE_MS;
    state.hidden = false;
    state.classList.toggle("stale", late);
    state.textContent = late ? `Stale since ${localTime.format(last)}` : "Live";
  };
  const source = new EventSource("/console/live");
  source.addEventListener("tick", (event) => {
    const { change } = JSON.parse(event.data);
    if (!failed) last = Date.now();
    shown ??= change;
    if (change !== shown && !document.hidden) {
      asked = change;
      htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerHTML" });
    }
    show();
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.target?.id !== "live") return;
    failed = !detail.successful;
    if (!failed) shown = asked;
    show();
  });
  setInterval(show, 2000);
  addEventListener("pagehide", () => source.close());
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
document.addEventListener("htmx:afterSettle", () => prepare(document));
document.addEventListener("DOMContentLoaded", () => {
  prepare(document);
  watch();
  const present = document.querySelector(".side [aria-current]"), side = present && present.closest(".side");
  if (side) side.scrollLeft = present.offsetLeft - side.offsetLeft - (side.clientWidth - present.offsetWidth) / 2; // narrow screens
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 150); });
