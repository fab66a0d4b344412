"""Byte streams under MQTT: TCP, Unix, TLS and WebSocket, all with one face (`Stream`).

The reactor owns the waiting: nothing here blocks, keeps a timer or knows about epoll.
"""
