// Acts: prepared by the server, shown in words, signed by the person's wallet, followed until final.
"use strict";

const POLL_MS = 2000;
const MAX_POLL_MS = 30000;

function line(parent, tag, text, className) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  parent.append(element);
  return element;
}

function copyButton(parent, text, value) {
  const button = line(parent, "button", "", "quiet");
  button.type = "button";
  button.dataset.copy = value;
  line(button, "span", text);
}

// Exact amount in ZEN, without trailing zeros.
function exactZen(wei) {
  const digits = String(wei).padStart(19, "0");
  const fraction = digits.slice(-18).replace(/0+$/, "");
  return digits.slice(0, -18) + (fraction && `.${fraction}`);
}

function longWords(seconds) {
  const [size, unit] = [[86400, "days"], [3600, "hours"], [60, "minutes"], [1, "seconds"]].find(([one]) => seconds >= one);
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(`${found.title}: ${found.detail}. ${found.remedy ?? ""}`);
  return found;
}

// Follow a sent act until it is final. The market's node may learn of it late, so that the report is repeated.
async function follow(state, hash, sent) {
  const words = { waiting: "Waiting for its block", mined: "Mined; not final yet", final: "Final", reverted: "Reverted" };
  let isReported = await window.zooWallet.record(sent);
  for (let pause = POLL_MS; ; ) {
    try {
      const { status } = await get(`/console/acts/transactions/${hash}`);
      state.textContent = `${words[status]}: ${hash}`;
      state.className = status === "reverted" ? "notice bad" : status === "final" ? "notice good" : "notice";
      if (!isReported && status !== "waiting") isReported = await window.zooWallet.record(sent);
      if (status === "final" || status === "reverted") return;
      pause = POLL_MS;
    } catch (failure) {
      state.textContent = `Sent: ${hash}. Its state is unknown now. ${failure.message}`;
      state.className = "notice warn";
      pause = Math.min(2 * pause, MAX_POLL_MS);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// Hash of the transaction that the wallet sent.
async function send(prepared, sender) {
  const wallet = window.zooWallet.chosenWallet();
  if (wallet === null) throw new Error("This browser does not know the wallet. Sign in again here.");
  const [from] = await wallet.request({ method: "eth_accounts" });
  if (sender && from.toLowerCase() !== sender.toLowerCase()) {
    throw new Error(`The wallet offers ${from}; this act was prepared for ${sender}. Choose that account in the wallet.`);
  }
  const { to, data, chain_id: expected } = prepared.transaction;
  const chain = Number(await wallet.request({ method: "eth_chainId" }));
  if (chain !== expected) throw new Error(`The wallet is on chain ${chain}; expected ${expected}. Switch it and sign again.`);
  return wallet.request({ method: "eth_sendTransaction", params: [{ from, to, data, value: "0x0" }] });
}

function report(box, error) {
  const old = box.querySelector(".notice.bad[role=alert]");
  if (old) old.remove();
  line(box, "p", error.message ?? "The wallet refused.", "notice bad").setAttribute("role", "alert");
}

function present(box, prepared) {
  box.replaceChildren();
  line(box, "h2", prepared.title);
  for (const sentence of prepared.words) line(box, "p", sentence);
  const role = prepared.role ? `needs ${prepared.role}` : "any account";
  const zen = exactZen(prepared.amount_wei);
  line(box, "p", `${prepared.contract}.${prepared.function}; ${role}; moves ${zen} ZEN (${prepared.amount_wei} wei)`, "muted");
  if (prepared.delay_seconds) line(box, "p", `It waits ${longWords(prepared.delay_seconds)} before it can take effect.`);
  const { passes, refusal, error, warnings } = prepared.simulation;
  line(box, "p", passes ? "The simulation passes." : `The simulation fails: ${refusal ?? error}`, passes ? "notice good" : "notice bad");
  for (const warning of warnings) line(box, "p", warning, "notice warn");
  let typed = null;
  if (prepared.confirmation) {
    const label = line(box, "label", `Type ${prepared.confirmation} to confirm`);
    typed = document.createElement("input");
    typed.autocomplete = "off";
    label.append(typed);
  }
  const buttons = line(box, "div", "", "filters");
  const sign = line(buttons, "button", "Sign in the wallet");
  sign.type = "button";
  copyButton(buttons, "Copy call data", prepared.transaction.data);
  copyButton(buttons, "Copy for a Safe", JSON.stringify(prepared.safe));
  const file = line(buttons, "a", "Download for a Safe", "button quiet");
  file.href = `data:application/json,${encodeURIComponent(JSON.stringify(prepared.safe))}`;
  file.download = `safe-${prepared.act ?? "timelock"}.json`;
  const state = line(box, "p", "", "notice");
  state.setAttribute("role", "status");
  state.hidden = true;
  sign.disabled = !passes || typed !== null;
  if (typed) typed.addEventListener("input", () => { sign.disabled = !passes || typed.value !== prepared.confirmation; });
  sign.addEventListener("click", async () => {
    sign.disabled = true;
    let hash;
    try {
      hash = await send(prepared, box.dataset.sender);
    } catch (failure) {
      report(box, failure);
      sign.disabled = false;
      return;
    }
    // From here on a second signature would send the act twice.
    state.hidden = false;
    await follow(state, hash, { tx_hash: hash, act: prepared.act ?? "timelock", stage: prepared.stage });
  });
  box.hidden = false;
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-act]");
  if (!form) return;
  event.preventDefault();
  const box = document.getElementById(form.dataset.box);
  const values = Object.fromEntries(new FormData(form));
  try {
    present(box, await window.zooWallet.post(`/console/acts/${form.dataset.act}/prepare`, { arguments: values }));
  } catch (error) {
    box.replaceChildren();
    box.hidden = false;
    report(box, error);
  }
});

// A form that is sent before this script runs would load its page again, so its button is disabled until now.
for (const button of document.querySelectorAll("form[data-act] button")) button.disabled = false;
