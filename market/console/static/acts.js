// Acts: prepared by the server, shown in words, signed by the person's wallet, followed until final.
"use strict";

const POLL_MS = 2000;

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

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(`${found.title}: ${found.detail}. ${found.remedy ?? ""}`);
  return found;
}

async function follow(state, hash) {
  const words = { waiting: "Waiting for its block", mined: "Mined; not final yet", final: "Final", reverted: "Reverted" };
  for (;;) {
    const { status } = await get(`/console/acts/transactions/${hash}`);
    state.textContent = `${words[status]}: ${hash}`;
    state.className = status === "reverted" ? "notice bad" : status === "final" ? "notice good" : "notice";
    if (status === "final" || status === "reverted") return;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function send(prepared, state) {
  const wallet = window.zooWallet.chosenWallet();
  if (wallet === null) throw new Error("This tab knows no wallet. Sign in again here.");
  const [from] = await wallet.request({ method: "eth_accounts" });
  const { to, data } = prepared.transaction;
  const hash = await wallet.request({ method: "eth_sendTransaction", params: [{ from, to, data, value: "0x0" }] });
  await window.zooWallet.record({ tx_hash: hash, act: prepared.act ?? "timelock", stage: prepared.stage });
  state.hidden = false;
  await follow(state, hash);
}

function report(box, error) {
  const old = box.querySelector(".notice.bad[role=alert]");
  if (old) old.remove();
  line(box, "p", error.message ?? "The wallet refused.", "notice bad").setAttribute("role", "alert");
}

function present(box, prepared) {
  box.replaceChildren();
  line(box, "h3", prepared.title);
  for (const sentence of prepared.words) line(box, "p", sentence);
  line(box, "p", `${prepared.contract}.${prepared.function}, moves ${prepared.amount_wei} wei`, "muted");
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
  const buttons = line(box, "p", "");
  const sign = line(buttons, "button", "Sign in the wallet");
  sign.type = "button";
  copyButton(buttons, "Copy call data", prepared.transaction.data);
  copyButton(buttons, "Copy for a Safe", JSON.stringify(prepared.safe));
  const state = line(box, "p", "", "notice");
  state.setAttribute("role", "status");
  state.hidden = true;
  sign.disabled = !passes || typed !== null;
  if (typed) typed.addEventListener("input", () => { sign.disabled = !passes || typed.value !== prepared.confirmation; });
  sign.addEventListener("click", async () => {
    sign.disabled = true;
    try {
      await send(prepared, state);
    } catch (failure) {
      report(box, failure);
      sign.disabled = false;
    }
  });
  box.hidden = false;
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-act], form[data-step]");
  if (!form) return;
  event.preventDefault();
  const box = document.getElementById(form.dataset.box);
  const values = Object.fromEntries(new FormData(form));
  try {
    present(box, await window.zooWallet.post(`/console/acts/${form.dataset.act ? `${form.dataset.act}/prepare` : form.dataset.step}`, form.dataset.act ? { arguments: values } : {}));
  } catch (error) {
    box.replaceChildren();
    box.hidden = false;
    report(box, error);
  }
});
