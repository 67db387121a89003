// The list of jobs, those in trouble first.

import { useEffect, useState } from "preact/hooks";

import { Age, DrawnOnChange, Reservations, State, addressOfJob, html, pace, useStream } from "./shared.mjs";
import { number, say } from "./words.mjs";

/** All jobs, a line each. */
export function Jobs() {
  const { data, lost, out } = useStream("api/jobs");
  const [wanted, setWanted] = useState("");
  useEffect(() => {
    document.title = "Hajob";
  }, []);
  const jobs = (data && data.jobs) || [];
  const words = wanted.toLowerCase();
  const shown = jobs.filter((job) => !words || `${job.namespace}/${job.name} ${job.state} ${job.reason}`.toLowerCase().includes(words));
  return html`
    <main class=${lost ? "old" : ""}>
      <${Reservations} lost=${lost} out=${out} data=${data} />
      <div class="bar">
        <${Counts} jobs=${jobs} />
        <input type="search" id="search" placeholder=${say("jobs.search")} aria-label=${say("jobs.search")}
          value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
      </div>
      ${!data && html`<p class="empty">${say("loading")}</p>`}
      ${data && !data.problem && !jobs.length && html`<p class="empty">${say("jobs.none")}</p>`}
      ${jobs.length > 0 && html`
        <div class="wide">
          <table class="jobs">
            <thead><tr>
              <th>${say("jobs.job")}</th><th>${say("jobs.state")}</th><th class="right">${say("jobs.step")}</th>
              <th class="right">${say("jobs.pace")}</th><th>${say("jobs.goodput")}</th><th>${say("jobs.protected")}</th>
              <th>${say("jobs.spares")}</th><th>${say("jobs.incidents")}</th><th>${say("jobs.waits")}</th>
            </tr></thead>
            <tbody>${shown.map((job) => html`<${Row} key=${`${job.namespace}/${job.name}`} job=${job} mark=${`${JSON.stringify(job)} ${document.documentElement.lang}`} />`)}</tbody>
          </table>
        </div>`}
      ${jobs.length > 0 && !shown.length && html`<p class="empty">${say("jobs.nomatch", { words: wanted })}</p>`}
    </main>`;
}

function Counts({ jobs }) {
  const counts = new Map();
  for (const job of jobs) counts.set(job.state, (counts.get(job.state) || 0) + 1);
  return html`<div class="counts">
    <b>${say("jobs.count", { n: number(jobs.length) })}</b>
    ${[...counts].map(([state, count]) => html`<span key=${state}><${State} word=${state} /> ${number(count)}</span>`)}
  </div>`;
}

// A row is drawn anew only when its own job has changed.
class Row extends DrawnOnChange {
  render({ job }) {
    const address = addressOfJob(job);
    const open = (event) => {
      // A link in the row does it itself, and text that is being marked must stay marked.
      if (!event.target.closest("a") && !String(getSelection())) location.hash = address;
    };
    const { incidents } = job;
    return html`
      <tr class="row ${job.healthy ? "" : "trouble"}" onClick=${open}>
        <td class="name"><a class="focus" href=${address}><small>${job.namespace}/</small>${job.name}</a></td>
        <td><${State} word=${job.state} reason=${job.reason} /></td>
        <td class="right">${job.step === null ? "–" : number(job.step)}</td>
        <td class="right">${pace(job)}</td>
        <td><${Goodput} told=${job.goodput} /></td>
        <td>${job.protected ? html`<${State} kind="protected" word=${job.protected} />` : "–"}</td>
        <td>${job.spares || "–"}</td>
        <td>${say("jobs.incidentsOf", { n: `${number(incidents.number)}${incidents.more ? "+" : ""}` })}
          ${incidents.lostSteps > 0 && html` <small>${say("jobs.lostSteps", { n: number(incidents.lostSteps) })}</small>`}</td>
        <td class="why">${job.healthy && job.protected !== "None" && job.protected !== "Partial" ? "" : firstLine(job.message)}
          ${!job.healthy && html` <small><${Age} since=${job.created} words="age.old" /></small>`}</td>
      </tr>`;
  }
}

const firstLine = (words) => words.split("\n", 1)[0];

/** A share as a bar and a number, with what it counts. */
export function Goodput({ told, short = false }) {
  if (!told) return "–";
  const basis = say(told.ofDay ? "goodput.day" : "goodput.start");
  return html`<span class="goodput" title=${basis}>
    <progress max="100" value=${told.percent} aria-label=${basis}></progress>
    ${told.percent.toFixed(1)}%${!told.ofDay && !short && html`<small>${say("goodput.startShort")}</small>`}
  </span>`;
}
