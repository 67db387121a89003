// The grid: a card for each node of a job, a cell for each rank, coloured by what it does.
//
// There may be thousands of cells. A card is drawn anew only when its own node has changed, and what the pointer does
// changes classes of a few cells, without a drawing.

import { useEffect, useMemo, useRef } from "preact/hooks";

import { DrawnOnChange, html } from "./shared.mjs";
import { say, wordFor } from "./words.mjs";

const MANY = 256; // ranks; above it numbers in the cells would be too small to read

/** All nodes of a job. */
export function Grid({ seats, groups, chosen, onChoose }) {
  const box = useRef(null);
  const ranks = seats.reduce((sum, seat) => sum + seat.number, 0);
  const told = JSON.stringify(groups); // each update of the job brings them anew, and nearly always the same
  const partners = useMemo(() => partnersByRank(groups), [told]);
  const lit = useRef([]);
  const light = (rank) => {
    for (const cell of lit.current) cell.classList.remove("lit", "self");
    lit.current = [];
    if (rank === null) return;
    const mark = (which, name) => {
      const cell = box.current.querySelector(`[data-rank="${which}"]`);
      if (cell) {
        cell.classList.add(name);
        lit.current.push(cell);
      }
    };
    mark(rank, "self");
    for (const other of partners.get(rank) || []) if (other !== rank) mark(other, "lit");
  };
  const rankOf = (event) => {
    const cell = event.target.closest("[data-rank]");
    return cell ? Number(cell.dataset.rank) : null;
  };
  useEffect(() => () => light(null), [told]);
  return html`
    <div class="grid ${ranks > MANY ? "many" : ""}" ref=${box}
      onPointerOver=${(event) => light(rankOf(event))} onPointerLeave=${() => light(null)}>
      ${seats.map((seat) => html`<${Card} key=${seat.nodeRank} seat=${seat} many=${ranks > MANY}
        partners=${partners} chosen=${chosen === seat.nodeRank} onChoose=${onChoose}
        mark=${`${JSON.stringify(seat)} ${chosen === seat.nodeRank} ${partners.size} ${document.documentElement.lang}`} />`)}
    </div>`;
}

/** Return for each rank the ranks that hold a part of its optimizer, too. */
function partnersByRank(groups) {
  const found = new Map();
  for (const group of groups) {
    for (const rank of group) {
      if (!found.has(rank)) found.set(rank, new Set());
      for (const other of group) found.get(rank).add(other);
    }
  }
  return found;
}

class Card extends DrawnOnChange {
  render({ seat, many, partners, chosen, onChoose }) {
    const does = seat.lost.length ? say("grid.lostOf", { ranks: seat.lost.join(", ") }) : wordFor("does", seat.does);
    const label = `${say("grid.node", { n: seat.nodeRank })} ${seat.node}, ${does}. ${say("grid.ask")}`;
    return html`
      <button class="card focus ${seat.does} ${chosen ? "chosen" : ""}" aria-label=${label} aria-pressed=${chosen}
        title=${many ? `${seat.node} · ${does}` : say("grid.ask")} onClick=${() => onChoose(seat.nodeRank)}>
        ${many ? html`<${ManyCells} seat=${seat} mark=${`${seat.first} ${seat.number} ${seat.lost}`} />` : html`<${Cells} seat=${seat} partners=${partners} />`}
        ${!many && html`<span class="where"><b>${seat.node || say("grid.nowhere")}</b> <small>${seat.nodeRank}</small></span>
          <span class="does">${does}${seat.state && html` <small>${seat.state}</small>`}</span>`}
      </button>`;
  }
}

function Cells({ seat, partners }) {
  return html`<span class="cells">${ranksOf(seat).map((rank) => {
    const does = seat.lost.includes(rank) ? "lost" : seat.does;
    const others = [...(partners.get(rank) || [])].filter((other) => other !== rank);
    const copies = others.length ? `\n${say("grid.copies", { ranks: others.slice(0, 8).join(", ") })}` : "";
    const title = `${say("grid.rank", { n: rank })}: ${wordFor("does", does)}${copies}`;
    return html`<i class="cell ${does}" data-rank=${rank} title=${title}>${rank}</i>`;
  })}</span>`;
}

const ranksOf = (seat) => [...Array(seat.number).keys()].map((at) => seat.first + at);

// Of thousands of cells only those that are lost have a colour of their own; the others have their card's, so that a
// training that stops changes hundreds of elements and not thousands.
class ManyCells extends DrawnOnChange {
  render({ seat }) {
    return html`<span class="cells">${ranksOf(seat).map((rank) => html`<i class="cell ${seat.lost.includes(rank) ? "lost" : ""}" data-rank=${rank}></i>`)}</span>`;
  }
}

const LEGEND = ["training", "stands", "starts", "waits", "lost", "ended"];

/** What the colours mean. */
export function Legend() {
  return html`<p class="legend">${LEGEND.map((does) => html`<span key=${does}><i class="cell ${does}"></i>${wordFor("does", does)}</span>`)}
    <span><i class="cell training lit"></i>${say("grid.partner")}</span></p>`;
}
