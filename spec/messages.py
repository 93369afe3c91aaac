"""Messages between actors: one queue in the order of sending (``docs/protocol.md``, *Messages*)."""

from __future__ import annotations

from spec.encoding import is_name
from spec.world import Message, World


def send(world: World, message: Message) -> None:
    """Queue a message. Raises ``MessageHandlerInvalid``, ``UnknownActor`` or ``MailboxFull``, in this order."""
    if not is_name(message.handler, may_be_empty=True):
        raise world.refusal("M-05", "MessageHandlerInvalid")
    if message.to not in world.actors:
        raise world.refusal("M-06", "UnknownActor")
    waiting = world.mailbox_bytes.get(message.to, 0) + len(message.payload)
    if waiting > world.parameters["MAILBOX_BYTES"]:
        raise world.refusal("M-07", "MailboxFull")
    world.put(world.mailbox_bytes, message.to, waiting)
    world.put(world.messages, world.count("next message"), message)


def take(world: World) -> Message:
    """Take the first message from the queue, and from its receiver's mailbox. It is used up even if it fails."""
    number = world.count("first message")
    message = world.messages[number]
    world.drop(world.messages, number)
    world.put(world.mailbox_bytes, message.to, world.mailbox_bytes[message.to] - len(message.payload))
    return message
