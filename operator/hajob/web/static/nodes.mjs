// The nodes with chips: whose they are, what is free, what keeps pods out.

import { useEffect } from "preact/hooks";

import { Reservations, State, addressOfJob, html, useStream } from "./shared.mjs";
import { number, say } from "./words.mjs";

/** All nodes, a line each. */
export function Nodes() {
  const { data, lost, out } = useStream("api/nodes");
  useEffect(() => {
    document.title = `Hajob · ${say("nodes.title")}`;
  }, []);
  const nodes = (data && data.nodes) || [];
  return html`
    <main class=${lost ? "old" : ""}>
      <${Reservations} lost=${lost} out=${out} data=${data} />
      ${!data && html`<p class="empty">${say("loading")}</p>`}
      ${data && data.counts && html`<div class="bar"><div class="counts">
        <b>${say("nodes.count", { n: number(nodes.length) })}</b>
        ${Object.entries(data.counts).map(([state, count]) => html`<span key=${state}><${State} kind="node" word=${state} /> ${number(count)}</span>`)}
      </div></div>`}
      ${data && !data.problem && !nodes.length && html`<p class="empty">${say("nodes.none", { resource: data.resource })}</p>`}
      ${nodes.length > 0 && html`
        <div class="wide"><table class="nodes">
          <thead><tr><th>${say("nodes.node")}</th><th>${say("nodes.state")}</th><th>${say("nodes.chips")}</th>
            <th>${say("nodes.owners")}</th><th>${say("nodes.detail")}</th></tr></thead>
          <tbody>${nodes.map((node) => html`<${Row} key=${node.name} node=${node} />`)}</tbody>
        </table></div>`}
    </main>`;
}

function Row({ node }) {
  return html`<tr class="row">
    <td class="name"><span class="focus" tabindex="0">${node.name}</span></td>
    <td><${State} kind="node" word=${node.state} /></td>
    <td><${Chips} node=${node} /></td>
    <td>${node.owners.map((owner) => html`<${Owner} key=${owner} owner=${owner} />`)}</td>
    <td class="why">${node.detail}</td>
  </tr>`;
}

function Owner({ owner }) {
  const [namespace, name] = owner.split("/");
  const isJob = name && !owner.startsWith("pod ");
  return isJob ? html`<a class="owner" href=${addressOfJob({ namespace, name })}>${owner}</a>` : html`<span class="owner">${owner}</span>`;
}

function Chips({ node }) {
  if (node.used === null) return say("nodes.unknown", { n: node.chips });
  const sick = Math.max(node.chips - node.used - node.free, 0);
  const cells = [...Array(Math.min(node.chips, 64)).keys()].map((at) => {
    const kind = at < node.used ? "used" : at < node.used + node.free ? "free" : "sick";
    return html`<i class=${kind}></i>`;
  });
  const words = say("nodes.chipsOf", { used: node.used, free: node.free, sick });
  return html`<span class="chips" title=${words} aria-label=${words} role="img">${cells}</span> <small>${say("nodes.free", { n: node.free })}</small>`;
}
