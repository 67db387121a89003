// Incidents: what happened, what was done, where the time went, and which smaller actions were refused, and why.

import { Age, State, html } from "./shared.mjs";
import { duration, number, say, timeOfDay, wordFor } from "./words.mjs";

/** All incidents that the status holds, newest first. */
export function Incidents({ incidents }) {
  if (!incidents.length) return html`<p class="empty">${say("incidents.none")}</p>`;
  const longest = Math.max(...incidents.map((one) => one.milliseconds), 1);
  return html`<ol class="incidents">
    ${incidents.map((one) => html`<${Incident} key=${one.number} one=${one} longest=${longest} />`)}
  </ol>`;
}

function Incident({ one, longest }) {
  return html`<li>
    <details>
      <summary class="focus">
        <span class="when"><b>#${one.number}</b> ${one.startMilliseconds === null ? "" : timeOfDay(one.startMilliseconds)}</span>
        <span class="what">${one.what}</span>
        <span class="done">${one.action && html`<b>${wordFor("action", one.action)}</b>`} <${State} kind="outcome" word=${one.outcome} /></span>
        ${one.outcome === "Open" ? html`<span class="phases"><span class="took"><${Age} since=${one.start} words="age.since" /></span></span>`
          : html`<${Phases} phases=${one.phases} longest=${longest} whole=${one.milliseconds} />`}
      </summary>
      <dl>
        ${one.step !== null && html`<dt>${say("incidents.step")}</dt><dd>${number(one.step)}</dd>`}
        <dt>${say("incidents.lost")}</dt><dd>${number(one.lostSteps)}</dd>
        ${one.from.length > 0 && html`<dt>${say("incidents.moved")}</dt><dd>${one.from.join(", ")} → ${one.to.join(", ") || "?"}</dd>`}
        ${one.restarts > 0 && html`<dt>${say("incidents.restarts")}</dt><dd>${number(one.restarts)}</dd>`}
        ${one.tried.length > 0 && html`<dt>${say("incidents.tried")}</dt><dd>${one.tried.map((action) => wordFor("action", action)).join(", ")}</dd>`}
        ${one.cause && html`<dt>${say("incidents.cause")}</dt><dd><pre>${one.cause}</pre></dd>`}
        <dt>${say("incidents.phases")}</dt><dd>${one.phases.map((part) => `${wordFor("phase", part.name)} ${duration(part.milliseconds)}`).join(" · ") || "–"}</dd>
        <dt>${say("incidents.refused")}</dt><dd>${one.refused.length ? html`<ul>${one.refused.map((refused) => html`<${Refused} key=${refused.action} refused=${refused} />`)}</ul>` : say("incidents.noneRefused")}</dd>
      </dl>
    </details>
  </li>`;
}

function Refused({ refused }) {
  return html`<li><b>${wordFor("action", refused.action)}</b>: ${refused.unmet.map((one) => html`<span key=${one.name} title=${one.remedy}>${one.need} <small>${one.name}</small></span> `)}</li>`;
}

function Phases({ phases, longest, whole }) {
  // A recovery of a second beside one of minutes must still be seen.
  const width = 12 + (88 * whole) / longest;
  return html`<span class="phases" role="img" aria-label=${say("incidents.took", { time: duration(whole) })}>
    <span class="track"><span class="parts" style=${{ width: `${width}%` }}>
      ${phases.filter((part) => part.milliseconds > 0).map((part) => html`<i class="phase ${part.name}" style=${{ flexGrow: part.milliseconds }}
        title=${`${wordFor("phase", part.name)} ${duration(part.milliseconds)}`}></i>`)}
    </span></span>
    <span class="took">${duration(whole)}</span>
  </span>`;
}
