// node mqttjs.cjs URL VERSION NAME CA: uses a broker in every usual way and prints what it saw.
'use strict'
const fs = require('fs')
const mqtt = require('mqtt')

const [url, version, name, ca] = process.argv.slice(2)
const protocolVersion = Number(version)

function open(clientId, options = {}) {
  const settings = { clientId, protocolVersion, reconnectPeriod: 0, ca: fs.readFileSync(ca), ...options }
  return new Promise((resolve, reject) => {
    const client = mqtt.connect(url, settings)
    const inbox = []
    let wake = () => {}
    client.on('message', (topic, payload, packet) => {
      inbox.push({ topic, payload: payload.toString(), packet })
      wake()
    })
    client.take = async (count) => {
      while (inbox.length < count) await new Promise((next) => { wake = next })
      return inbox.splice(0, count)
    }
    client.once('connect', (connack) => resolve([client, connack]))
    client.once('error', reject)
  })
}

const told = ({ topic, payload, packet }) => [topic, payload, packet.qos, packet.retain]
const lasting = protocolVersion === 5 ? { clean: false, properties: { sessionExpiryInterval: 600 } } : { clean: false }

async function main() {
  const seen = { sessionPresent: [] }
  const [client] = await open(name)

  seen.messages = []
  for (const qos of [0, 1, 2]) {
    await client.subscribeAsync(`${name}/${qos}`, { qos })
    for (let n = 0; n < 5; n++) await client.publishAsync(`${name}/${qos}`, String(n), { qos })
    seen.messages.push(...(await client.take(5)).map(told))
  }

  await client.publishAsync(`${name}/kept`, 'kept', { qos: 1, retain: true })
  await client.subscribeAsync(`${name}/kept`, { qos: 1 })
  seen.retained = (await client.take(1)).map(told)
  await client.unsubscribeAsync(`${name}/kept`)
  await client.publishAsync(`${name}/kept`, '', { qos: 1, retain: true })

  await client.subscribeAsync(`${name}/will`, { qos: 2 })
  const [mortal] = await open(`${name}-mortal`, { will: { topic: `${name}/will`, payload: 'gone', qos: 2 } })
  mortal.stream.destroy()
  seen.will = told((await client.take(1))[0])

  const [away, first] = await open(`${name}-away`, lasting)
  seen.sessionPresent.push(first.sessionPresent)
  await away.subscribeAsync(`${name}/away`, { qos: 1 })
  await away.endAsync()
  for (let n = 0; n < 10; n++) await client.publishAsync(`${name}/away`, String(n), { qos: 1 })
  const [back, second] = await open(`${name}-away`, lasting)
  seen.sessionPresent.push(second.sessionPresent)
  seen.away = (await back.take(10)).map(({ payload }) => payload)
  await back.endAsync()

  if (protocolVersion === 5) {
    await client.subscribeAsync(`${name}/properties`, { qos: 1 })
    const userProperties = { a: '1', b: ['2', '3'] }
    await client.publishAsync(`${name}/properties`, 'x', { qos: 1, properties: { userProperties } })
    seen.userProperties = (await client.take(1))[0].packet.properties.userProperties
  }
  await client.endAsync()
  process.stdout.write(JSON.stringify(seen))
}

main().then(() => process.exit(0), (error) => {
  console.error(error)
  process.exit(1)
})
