"""Messages between actors: one queue in the order of sending (``docs/protocol.md``, *Messages*)."""

from __future__ import annotations

from spec.encoding import is_name
from spec.world import Message, World


def send(world: World, message: Message) -> None:
    """Queue a message. Raises ``MessageHandlerInvalid``, ``UnknownActor`` or ``MailboxFull``, in this order."""
    world.refuse("M-05", "MessageHandlerInvalid", not is_name(message.handler, may_be_empty=True))
    world.refuse("M-06", "UnknownActor", message.to not in world.actors)
    waiting = world.mailbox_bytes.get(message.to, 0) + len(message.payload)
    world.refuse("M-07", "MailboxFull", waiting > world.parameters["MAILBOX_BYTES"])
    world.put(world.mailbox_bytes, message.to, waiting)
    world.put(world.messages, world.count("next message"), message)


def take(world: World) -> Message:
    """Take the first message from the queue, and from its receiver's mailbox. It is used up even if it fails."""
    number = world.count("first message")
    message = world.messages[number]
    world.drop(world.messages, number)
    world.put(world.mailbox_bytes, message.to, world.mailbox_bytes[message.to] - len(message.payload))
    return message
