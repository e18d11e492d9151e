// The table of the running instances.

import { element, put, row, stamp, word } from "./desk.js";
import { at } from "./dom.js";
import { number } from "./i18n.js";

// drawInstances shows a list of {id, url, strategy, gate_reachable, requests, reported_at}.
export function drawInstances(list) {
  put(at("instances"), list.sort((a, b) => a.id.localeCompare(b.id)).map(line), "none_yet");
}

function line({ id, url, strategy, gate_reachable: reachable, requests, reported_at: reportedAt }) {
  const name = element("span", "id", id);
  const gate = word(reachable ? "gate_open" : "gate_away", "span", "state");
  gate.dataset.state = reachable ? "open" : "away";
  const who = element("span");
  who.append(name, element("span", "quiet below", url));
  return row([who, strategy, gate, number(requests), stamp(reportedAt)], [3]);
}
