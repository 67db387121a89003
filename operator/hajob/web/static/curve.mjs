// Steps over time, with a flag at each incident.

import { useEffect, useRef } from "preact/hooks";

import { html } from "./shared.mjs";
import { number, say, timeOfDay, two, wordFor } from "./words.mjs";

const HEIGHT = 240;
const FLAG = 14; // pixels

/** The curve of a job. */
export function Curve({ points, incidents, theme }) {
  const box = useRef(null);
  const plot = useRef(null);
  const told = useRef(incidents);
  told.current = incidents;
  useEffect(() => {
    const place = box.current;
    const made = new uPlot(options(place, told), data(points), place);
    plot.current = made;
    const follow = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height: HEIGHT }));
    follow.observe(place);
    return () => {
      follow.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, document.documentElement.lang]);
  useEffect(() => {
    if (plot.current) plot.current.setData(data(points));
  }, [points, incidents]);
  return html`<div class="curve" ref=${box} role="img" aria-label=${say("curve.title")}></div>`;
}

const data = (points) => [points.map((point) => point[0] / 1000), points.map((point) => point[1])];

function options(box, told) {
  const colours = getComputedStyle(box);
  const colour = (name) => colours.getPropertyValue(name).trim();
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  return {
    width: box.clientWidth || 600,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: true, y: false } },
    padding: [FLAG + 6, 12, 0, 0],
    axes: [
      { ...axis, values: (_, splits, __, ___, apart) => splits.map((at) => clock(at, apart)) },
      { ...axis, size: 64, values: (_, splits) => splits.map((step) => number(step)) },
    ],
    series: [{}, { stroke: colour("--blue"), width: 2, points: { show: false } }],
    hooks: {
      ready: [(plot) => plot.over.append(tip)],
      draw: [(plot) => drawFlags(plot, told.current, colour)],
      setCursor: [(plot) => showTip(plot, told.current, tip)],
    },
  };
}

function clock(at, apart) {
  const date = new Date(at * 1000);
  if (apart >= 86400) return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return apart < 60 ? `${minutes}:${two(date.getSeconds())}` : minutes;
}

function drawFlags(plot, incidents, colour) {
  const { ctx } = plot;
  const dots = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * dots}px system-ui, sans-serif`;
  for (const one of incidents) {
    const at = plot.valToPos(one.startMilliseconds / 1000, "x", true);
    if (!(at >= plot.bbox.left && at <= plot.bbox.left + plot.bbox.width)) continue;
    ctx.strokeStyle = ctx.fillStyle = colour({ Failed: "--red", Open: "--yellow" }[one.outcome] || "--green");
    ctx.lineWidth = dots;
    ctx.beginPath();
    ctx.moveTo(at, plot.bbox.top - FLAG * dots);
    ctx.lineTo(at, plot.bbox.top + plot.bbox.height);
    ctx.stroke();
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    const words = `#${one.number}`;
    const wide = ctx.measureText(words).width + 6 * dots;
    ctx.fillRect(at, plot.bbox.top - FLAG * dots, wide, FLAG * dots);
    ctx.fillStyle = colour("--paper");
    ctx.fillText(words, at + 3 * dots, plot.bbox.top - 3.5 * dots);
  }
  ctx.restore();
}

function showTip(plot, incidents, tip) {
  const { left, idx } = plot.cursor;
  if (left < 0 || idx === null || idx === undefined) {
    tip.hidden = true;
    return;
  }
  const near = incidents.filter((one) => Math.abs(plot.valToPos(one.startMilliseconds / 1000, "x") - left) < 8);
  // textContent: what users and programs wrote stays text.
  tip.textContent = near.length
    ? near.map((one) => `#${one.number} ${wordFor("action", one.action)}: ${one.what}`).join("\n")
    : `${timeOfDay(plot.data[0][idx] * 1000)}  ${say("curve.step", { n: number(plot.data[1][idx]) })}`;
  tip.hidden = false;
  const right = left > plot.over.clientWidth / 2;
  tip.style.left = right ? "" : `${left + 12}px`;
  tip.style.right = right ? `${plot.over.clientWidth - left + 12}px` : "";
}
