// The page's words in the reader's language, and numbers, times and durations as that language writes them.

const KEPT = "hajob.language";

let catalogue = {};
let language = "en";
let numbers = new Intl.NumberFormat("en");

/** Load the catalogue; called once, before anything is drawn. */
export async function loadWords() {
  catalogue = await (await fetch("static/words.json")).json();
  const kept = localStorage.getItem(KEPT);
  useLanguage(kept || (navigator.language.startsWith("zh") ? "zh" : "en"));
}

/** Speak this language from now on: en or zh. */
export function useLanguage(name) {
  language = name === "zh" ? "zh" : "en";
  numbers = new Intl.NumberFormat(language);
  localStorage.setItem(KEPT, language);
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

/** Return the language that is spoken. */
export const languageNow = () => language;

/** Return a sentence of the catalogue; {name} in it stands for a value. */
export function say(key, values = {}) {
  const found = catalogue[key];
  if (!found) throw new Error(`words.json has no ${key}`);
  return found[language].replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Return the reader's word for one of Hajob's own, such as a state; one that this version does not know stays as it is. */
export function wordFor(kind, word) {
  const found = catalogue[`${kind}.${word}`];
  return found ? found[language] : word;
}

/** Return a number with its digits in groups. */
export const number = (value) => numbers.format(value);

/** Return a time span: 850 ms, 6.2 s, 4 min, 3 h 20 min, 4 d. */
export function duration(milliseconds) {
  const unit = (name, value) => say(`unit.${name}`, { n: value });
  const seconds = Math.max(milliseconds, 0) / 1000;
  if (seconds < 1) return unit("milliseconds", Math.round(seconds * 1000));
  if (seconds < 60) return unit("seconds", seconds < 10 ? seconds.toFixed(1) : Math.round(seconds));
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return unit("minutes", minutes);
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${unit("hours", hours)} ${unit("minutes", minutes % 60)}` : unit("hours", hours);
  const days = Math.floor(hours / 24);
  return days < 7 && hours % 24 ? `${unit("days", days)} ${unit("hours", hours % 24)}` : unit("days", days);
}

/** Return a number with two digits at least. */
export const two = (value) => String(value).padStart(2, "0");

/** Return a time as the reader's clock shows it, with its date where it was not today. */
export function timeOfDay(milliseconds) {
  const at = new Date(milliseconds);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === new Date().toDateString() ? clock : `${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}
