// The page: which view is shown, the bar above it, keys that work everywhere.

import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Job } from "./job.mjs";
import { Jobs } from "./jobs.mjs";
import { Nodes } from "./nodes.mjs";
import { html, moveFocus } from "./shared.mjs";
import { languageNow, loadWords, say, useLanguage } from "./words.mjs";

const THEME = "hajob.theme";

function currentRoute() {
  const [view, namespace, name] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return view === "jobs" && name ? { view: "job", namespace, name } : { view: view === "nodes" ? "nodes" : "jobs" };
}

function themeNow() {
  return localStorage.getItem(THEME) || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function App() {
  const [route, setRoute] = useState(currentRoute());
  const [theme, setTheme] = useState(themeNow());
  const [language, setLanguage] = useState(languageNow());
  const help = useRef(null);
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, next);
    setTheme(next);
  };
  const translate = () => {
    useLanguage(language === "zh" ? "en" : "zh");
    setLanguage(languageNow());
  };
  document.documentElement.dataset.theme = theme;
  useEffect(() => {
    const follow = () => {
      setRoute(currentRoute());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  // Before the first drawing is seen: whoever sees the page may press a key.
  useLayoutEffect(() => {
    const press = (event) => pressKey(event, { help: help.current, turn, translate });
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return html`
    <header class="top">
      <a class="brand focus" href="#/">Hajob</a>
      <nav>
        <a class="focus" href="#/" aria-current=${route.view === "nodes" ? undefined : "page"}>${say("nav.jobs")}</a>
        <a class="focus" href="#/nodes" aria-current=${route.view === "nodes" ? "page" : undefined}>${say("nav.nodes")}</a>
      </nav>
      <span class="tools">
        <button class="focus" onClick=${translate} title="l">${say("nav.language")}</button>
        <button class="focus" onClick=${turn} title="t">${say(theme === "dark" ? "nav.light" : "nav.dark")}</button>
        <button class="focus" onClick=${() => help.current.showModal()} title="?" aria-label=${say("help.title")}>?</button>
        <${Leave} />
      </span>
    </header>
    ${route.view === "job" && html`<${Job} key=${`${route.namespace}/${route.name}`} namespace=${route.namespace} name=${route.name} theme=${theme} />`}
    ${route.view === "jobs" && html`<${Jobs} />`}
    ${route.view === "nodes" && html`<${Nodes} />`}
    <dialog ref=${help}><h2>${say("help.title")}</h2><dl>
      ${KEYS.map(([keys, words]) => html`<dt key=${keys}>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${say(words)}</dd>`)}
    </dl><form method="dialog"><button class="focus">${say("close")}</button></form></dialog>`;
}

// The page of a team has somebody who logged in; the local one has not.
function Leave() {
  if (!document.cookie.includes("hajob-team=1")) return null;
  return html`<form method="post" action="logout"><button class="focus">${say("nav.leave")}</button></form>`;
}

const KEYS = [
  ["j k ↓ ↑", "help.move"],
  ["Enter", "help.open"],
  ["Esc", "help.back"],
  ["/", "help.search"],
  ["1 2", "help.views"],
  ["l", "help.language"],
  ["t", "help.theme"],
  ["?", "help.help"],
];

function pressKey(event, { help, turn, translate }) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.closest("input, textarea");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    if (event.key === "ArrowDown") moveFocus(".row .focus", 1);
    return;
  }
  const rows = document.querySelector(".grid") ? ".card.focus, summary.focus" : ".row .focus";
  const actions = {
    j: () => moveFocus(rows, 1),
    k: () => moveFocus(rows, -1),
    ArrowDown: () => moveFocus(rows, 1),
    ArrowUp: () => moveFocus(rows, -1),
    "/": () => document.querySelector("#search")?.focus(),
    1: () => (location.hash = "#/"),
    2: () => (location.hash = "#/nodes"),
    Escape: () => document.querySelector(".loss") || (location.hash = "#/"),
    l: translate,
    t: turn,
    "?": () => help.showModal(),
  };
  const action = actions[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

// The key of the local page stands in its address once; it goes before anybody copies it.
history.replaceState(null, "", location.pathname + location.hash);
await loadWords();
render(html`<${App} />`, document.querySelector("#page"));
