// Orders and deposits that the payer's wallet signs.
"use strict";

function show(id, text) {
  const element = document.getElementById(id);
  element.textContent = text;
  element.hidden = !text;
}

async function sign(wallet, document) {
  const [address] = await wallet.request({ method: "eth_accounts" });
  return wallet.request({ method: "eth_signTypedData_v4", params: [address, JSON.stringify(document)] });
}

async function submitOrder(wallet, button) {
  const signature = await sign(wallet, JSON.parse(button.dataset.order));
  const body = { ...JSON.parse(button.dataset.request), order_signature: signature };
  const { location: target } = await window.zooWallet.post("/console/my/new-job/submit", body);
  location.assign(target);
}

async function deposit(wallet, button) {
  const amount = button.dataset.deposit;
  const permit = await window.zooWallet.post("/console/my/deposit/permit", { amount });
  const signature = await sign(wallet, permit);
  const { nonce, deadline } = permit.message;
  const body = { amount, permit_nonce: String(nonce), deadline: Number(deadline), signature };
  await window.zooWallet.post("/console/my/deposit", body);
  show("order-state", "The deposit is on its way. Get a new quote in a moment.");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-order], [data-deposit]");
  if (!button) return;
  show("order-error", "");
  const wallet = window.zooWallet.chosenWallet();
  if (wallet === null) return show("order-error", "This tab knows no wallet. Sign in again here.");
  button.disabled = true;
  try {
    await (button.dataset.order ? submitOrder(wallet, button) : deposit(wallet, button));
  } catch (error) {
    show("order-error", error.message ?? "The wallet refused.");
    button.disabled = false;
  }
});
