// One job: how it stands, its grid, its curve, where its time went, its incidents, and what a lost node would cost.

import { useEffect, useState } from "preact/hooks";

import { Curve } from "./curve.mjs";
import { Grid, Legend } from "./grid.mjs";
import { Incidents } from "./incidents.mjs";
import { Goodput } from "./jobs.mjs";
import { Age, Reservations, State, html, pace, toneOf, useAnswer, useStream } from "./shared.mjs";
import { duration, number, say, wordFor } from "./words.mjs";

/** The page of a job. */
export function Job({ namespace, name, theme }) {
  const path = `api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const { data, lost, out } = useStream(path);
  const known = Boolean(data && !data.problem);
  // The layout of a job never changes: its copies are asked for once.
  const copies = useAnswer(known ? `${path}/copies` : null);
  const [chosen, setChosen] = useState(null);
  useEffect(() => {
    document.title = `${name} · Hajob`;
    setChosen(null);
  }, [path]);
  useEffect(() => {
    const close = (event) => event.key === "Escape" && setChosen(null);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, []);
  const groups = (copies && copies.groups) || NO_GROUPS;
  return html`
    <main class=${lost ? "old" : ""}>
      <p class="crumb"><a class="focus" href="#/">${say("nav.jobs")}</a> / ${namespace} / <b>${name}</b></p>
      <${Reservations} lost=${lost} out=${out} data=${data} />
      ${!data && html`<p class="empty">${say("loading")}</p>`}
      ${known && html`
        <${Head} data=${data} />
        <section><h2>${say("grid.title")}</h2>
          ${data.seats.length > 0 ? html`<${Grid} seats=${data.seats} groups=${groups} chosen=${chosen} onChoose=${(node) => setChosen(chosen === node ? null : node)} /><${Legend} />`
            : html`<p class="empty">${say("grid.none")}</p>`}
          ${copies && copies.problem && html`<p class="notice busy">${copies.problem}</p>`}
          ${chosen !== null && html`<${Loss} path=${path} nodeRank=${chosen} job=${data.job} onClose=${() => setChosen(null)} />`}
          <${Others} others=${data.others} />
        </section>
        <div class="halves">
          <section><h2>${say("curve.title")}</h2><${Curve} points=${data.points} incidents=${data.incidents} theme=${theme} /></section>
          <section><h2>${say("buckets.title")}</h2><${Buckets} buckets=${data.buckets} percent=${data.goodputSinceStart} />
            <h2>${say("protection.title")}</h2><${Protection} data=${data} /></section>
        </div>
        <section><h2>${say("incidents.title")}</h2><${Incidents} incidents=${data.incidents} /></section>`}
    </main>`;
}

const NO_GROUPS = [];

function Head({ data }) {
  const { job, checkpoint } = data;
  const { shape } = job;
  const sizes = Object.entries(shape.sizes).map(([size, value]) => `${size} ${value}`);
  const nodes = say("head.shape", { product: shape.product, nodes: shape.numNodes, chips: shape.chipsPerNode || "?" });
  return html`
    <header class="job">
      <h1>${job.name} <${State} word=${job.state} reason=${job.reason} /></h1>
      <p class="soft">${[nodes, ...sizes, say("head.data", { size: job.size || "?" })].join(" · ")} · <${Age} since=${job.created} words="age.old" /></p>
      ${job.message && html`<p class="notice ${toneOf(job.state) === "bad" ? "bad" : "busy"}"><span class="message">${job.message}</span></p>`}
      <dl class="facts">
        <${Fact} name=${say("jobs.step")} value=${job.step === null ? "–" : number(job.step)} note=${job.observed && html`<${Age} since=${job.observed} words="age.seen" />`} />
        <${Fact} name=${say("jobs.pace")} value=${pace(job)} note=${job.stepMilliseconds && say("head.aStep", { time: duration(job.stepMilliseconds) })} />
        <${Fact} name=${say("jobs.goodput")} value=${html`<${Goodput} told=${job.goodput} short />`} note=${job.goodput && say(job.goodput.ofDay ? "goodput.day" : "goodput.start")} />
        <${Fact} name=${say("head.checkpoint")} value=${checkpoint.step === null ? "–" : number(checkpoint.step)} note=${checkpoint.time && html`<${Age} since=${checkpoint.time} />`} />
        <${Fact} name=${say("jobs.protected")} value=${job.protected ? wordFor("protected", job.protected) : "–"} note=${data.works.map((action) => wordFor("action", action)).join(", ")} />
        <${Fact} name=${say("jobs.spares")} value=${job.spares || "–"} />
      </dl>
    </header>`;
}

function Fact({ name, value, note = "" }) {
  return html`<div><dt>${name}</dt><dd>${value}</dd><small>${note}</small></div>`;
}

function Others({ others }) {
  if (!others.length) return null;
  return html`<ul class="others">${others.map((one) => html`<li key=${one.pod}><b>${wordFor("role", one.role)}</b> ${one.node || say("grid.nowhere")} <small>${one.state}</small></li>`)}</ul>`;
}

// What a lost node would cost now: the planner's own answer.
function Loss({ path, nodeRank, job, onClose }) {
  const told = useAnswer(`${path}/losses/${nodeRank}`);
  return html`<aside class="loss" aria-live="polite">
    <button class="close focus" onClick=${onClose} aria-label=${say("close")}>×</button>
    <h3>${say("loss.title", { n: nodeRank })}</h3>
    ${!told && html`<p>${say("loading")}</p>`}
    ${told && told.problem && html`<p class="notice busy">${told.problem}</p>`}
    ${told && !told.problem && html`<${LossAnswer} told=${told} job=${job} />`}
  </aside>`;
}

function LossAnswer({ told, job }) {
  const facts = [];
  if (told.spare) facts.push(say("loss.spare", { node: told.spare }));
  if (told.usualMilliseconds !== null) facts.push(say("loss.usual", { time: duration(told.usualMilliseconds) }));
  if (told.dataParallel.current !== told.dataParallel.desired) facts.push(say("loss.smaller", told.dataParallel));
  if (told.stepTime !== null && told.stepTime > 1.005) facts.push(say("loss.slower", { times: told.stepTime.toFixed(2) }));
  facts.push(say("loss.free", { n: told.freeNodes }));
  return html`
    <p class="verdict"><${State} kind="action" word=${told.action || "fails"} /> ${told.action ? wordFor("cost", told.cost) : told.failure}</p>
    <p>${facts.join(" · ")}</p>
    <ul>${told.considered.map((one) => html`<li key=${one.action} class=${one.taken ? "taken" : "refused"}><b>${wordFor("action", one.action)}</b> ${one.taken ? say("loss.taken") : one.message}</li>`)}</ul>
    ${!job.trains && html`<p class="soft">${say("loss.standing")}</p>`}
    ${told.notes.map((note) => html`<p class="notice busy" key=${note}>${note}</p>`)}`;
}

function Buckets({ buckets, percent }) {
  const all = Object.entries(buckets).filter(([, seconds]) => seconds > 0).sort((one, other) => other[1] - one[1]);
  if (!all.length) return html`<p class="empty">${say("buckets.none")}</p>`;
  const sum = all.reduce((before, [, seconds]) => before + seconds, 0);
  return html`
    ${percent !== null && html`<p>${say("buckets.percent", { percent: percent.toFixed(1) })}</p>`}
    <div class="buckets" role="img" aria-label=${say("buckets.title")}>
      ${all.map(([name, seconds]) => html`<i class="bucket ${name}" key=${name} style=${{ flexGrow: seconds / sum }} title=${`${wordFor("bucket", name)} ${duration(seconds * 1000)}`}></i>`)}
    </div>
    <ul class="key">${all.map(([name, seconds]) => html`<li key=${name}><i class="bucket ${name}"></i>${wordFor("bucket", name)} <small>${duration(seconds * 1000)}</small></li>`)}</ul>`;
}

function Protection({ data }) {
  return html`
    ${data.works.length > 0 && html`<p>${say("protection.works")} <b>${data.works.map((action) => wordFor("action", action)).join(", ")}</b></p>`}
    ${!data.works.length && html`<p class="soft">${say("protection.none")}</p>`}
    <ul class="unmet">${data.unmet.map((one) => html`<li key=${one.told}>${one.told}<small>→ ${one.remedy}</small></li>`)}</ul>
    ${data.notVisible && html`<p class="soft">${data.notVisible}</p>`}`;
}
