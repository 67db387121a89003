// What several views use: the template, a stream of one view, ages that count by themselves, small parts.

import { Component, h } from "preact";
import { useEffect, useState } from "preact/hooks";
import htm from "htm";

import { duration, languageNow, number, say, wordFor } from "./words.mjs";

export const html = htm.bind(h);

// What the cluster says is translated by the server, which has the catalogue of the commands.
const inLanguage = (path) => `${path}?language=${languageNow()}`;

/** Follow a view of the server: its newest data, and whether the connection is there. */
export function useStream(path) {
  const [seen, setSeen] = useState({ path, data: null, lost: false });
  const address = inLanguage(path);
  useEffect(() => {
    setSeen((before) => (before.path === path ? before : { path, data: null, lost: false }));
    const stream = new EventSource(address);
    stream.onmessage = (message) => setSeen({ path, data: JSON.parse(message.data), lost: false });
    // The browser tries again by itself; what is shown meanwhile is old, and says so.
    // A refusal is final: the key is another one, or whoever looked was logged out.
    stream.onerror = () => setSeen((before) => ({ ...before, lost: true, out: stream.readyState === EventSource.CLOSED }));
    return () => stream.close();
  }, [address]);
  // The first drawing after a change of the path still holds the other view's data.
  return seen.path === path ? seen : { path, data: null, lost: false };
}

/** Ask the server once. */
export function useAnswer(path) {
  const [seen, setSeen] = useState({ path: null, data: null });
  const address = path && inLanguage(path);
  useEffect(() => {
    if (!address) return undefined;
    const asked = new AbortController();
    fetch(address, { signal: asked.signal })
      .then((answer) => answer.json())
      .then((data) => setSeen({ path, data }))
      .catch((problem) => problem.name === "AbortError" || setSeen({ path, data: { problem: String(problem) } }));
    return () => asked.abort();
  }, [address]);
  return seen.path === path ? seen.data : null;
}

// One clock for all ages on the page: a timer for each would wake a browser a hundred times a second.
const watchers = new Set();
setInterval(() => watchers.forEach((tick) => tick(Date.now())), 1000);

/** How long ago something was, drawn anew every second. */
export function Age({ since, words = "age.ago" }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    watchers.add(setNow);
    return () => watchers.delete(setNow);
  }, []);
  const at = Date.parse(since);
  return Number.isNaN(at) ? "" : html`<span title=${new Date(at).toLocaleString()}>${say(words, { age: duration(now - at) })}</span>`;
}

/** A part of many alike: it is drawn anew only when its `mark` has changed, which names everything that it shows. */
export class DrawnOnChange extends Component {
  shouldComponentUpdate(next) {
    return next.mark !== this.props.mark;
  }
}

const TONES = {
  good: ["Running", "Complete", "Full", "Recovered", "Done", "free", "used", "training"],
  bad: ["Failed", "None", "Refused", "sick", "lost", "not ready"],
  busy: ["Pending", "Starting", "Recovering", "Restarting", "Saving", "Held", "OnHold", "Partial", "Open", "Unprotected"],
  other: ["Shrunk", "Expanding", "Migrating", "Paused", "cordoned", "quarantined", "unknown"],
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => [word, tone])));

/** Return how good or bad a word of Hajob is: good, bad, busy, other, or plain. */
export const toneOf = (word) => TONE_OF.get(word) || "plain";

/** A state as a coloured dot and a word. */
export function State({ kind = "state", word, reason = "" }) {
  return html`<span class="state ${toneOf(word)}"><i aria-hidden="true"></i>${wordFor(kind, word)}${reason && html` <small>${reason}</small>`}</span>`;
}

/** How fast a training is, in steps a second or seconds a step, whichever reads better; only while it trains. */
export function pace(job) {
  const milliseconds = job.stepMilliseconds;
  if (!job.trains || !milliseconds) return "–";
  const perSecond = 1000 / milliseconds;
  return say("pace", { n: perSecond >= 10 ? number(Math.round(perSecond)) : perSecond.toPrecision(2) });
}

/** What must be said before anybody believes what is shown: no connection, old data, missing rights. */
export function Reservations({ lost, out, data }) {
  const told = [];
  if (lost) told.push(["bad", say(out ? "lost.out" : "lost.server")]);
  if (data && data.silentSeconds) told.push(["bad", say("lost.cluster", { age: duration(data.silentSeconds * 1000) })]);
  if (data && data.problem) told.push(["bad", data.problem]);
  for (const right of (data && data.unknown) || []) told.push(["busy", say("unknown.right", { right })]);
  if (data && data.unheard && data.unheard.length) told.push(["busy", say("unknown.yet", { what: data.unheard.join(", ") })]);
  return told.map(([tone, words]) => html`<p class="notice ${tone}" role="status">${words}</p>`);
}

/** Return the address of a job's page. */
export const addressOfJob = (job) => `#/jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`;

/** Move the focus among the elements that a selector finds, with arrows or j and k. */
export function moveFocus(selector, by) {
  const all = [...document.querySelectorAll(selector)];
  const at = all.indexOf(document.activeElement.closest(selector));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  if (next) next.focus();
}
