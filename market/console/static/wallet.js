// Wallets: those of the browser (EIP-6963, EIP-1193) and, on a devnet, its accounts through the server's relay.
"use strict";

const wallets = new Map(); // by rdns or devnet address: { name, provider }
const CHOSEN = "zoo-wallet";

async function post(path, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const token = document.querySelector('meta[name="csrf-token"]');
  if (token) headers["X-CSRF-Token"] = token.content;
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "same-origin" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(`${found.title}: ${found.detail}. ${found.remedy ?? ""}`);
  return found;
}

// EIP-1193 provider of one devnet account.
function devnetProvider(address) {
  return {
    request: async ({ method, params = [] }) => {
      if (method === "eth_requestAccounts" || method === "eth_accounts") return [address];
      return (await post("/console/devnet/rpc", { method, params })).result;
    },
  };
}

// The wallet of this session, for acts; null if another browser signed in.
function chosenWallet() {
  const key = localStorage.getItem(CHOSEN);
  if (key === null) return null;
  if (key.startsWith("0x")) return devnetProvider(key);
  return wallets.get(key)?.provider ?? null;
}

function hex(text) {
  return "0x" + Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function signIn(key, provider) {
  const [address] = await provider.request({ method: "eth_requestAccounts" });
  const { message } = await post("/console/sign-in/challenge", { address });
  const signature = await provider.request({ method: "personal_sign", params: [hex(message), address] });
  await post("/console/sign-in", { message, signature });
  localStorage.setItem(CHOSEN, key);
  location.assign(document.getElementById("sign-in").dataset.next);
}

async function tryToSignIn(button, key, provider) {
  const failure = document.getElementById("sign-in-error");
  failure.hidden = true;
  button.disabled = true;
  try {
    await signIn(key, provider);
  } catch (error) {
    failure.textContent = error.message ?? "The wallet refused.";
    failure.hidden = false;
    button.disabled = false;
  }
}

function announce(key, name, provider) {
  if (wallets.has(key)) return;
  wallets.set(key, { name, provider });
  const list = document.getElementById("wallets");
  if (!list) return;
  document.getElementById("no-wallet").hidden = true;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.addEventListener("click", () => tryToSignIn(button, key, provider));
  const item = document.createElement("li");
  item.append(button);
  list.append(item);
}

addEventListener("eip6963:announceProvider", ({ detail }) => announce(detail.info.rdns, detail.info.name, detail.provider));
document.addEventListener("DOMContentLoaded", () => {
  dispatchEvent(new Event("eip6963:requestProvider"));
  if (window.ethereum && !wallets.size) announce("injected", "Browser wallet", window.ethereum);
  for (const button of document.querySelectorAll("[data-devnet]")) {
    const address = button.dataset.devnet;
    button.addEventListener("click", () => tryToSignIn(button, address, devnetProvider(address)));
  }
});

// Report a sent act; return true if the market took it. A failure must not hide the act itself.
async function record(sent) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": document.querySelector('meta[name="csrf-token"]').content };
  const request = { method: "POST", headers, body: JSON.stringify(sent), credentials: "same-origin" };
  return fetch("/console/acts/sent", request).then((answer) => answer.ok, () => false);
}

window.zooWallet = { chosenWallet, post, record };
