"""Documents of chats: their texts, collections, the index, and answers read from them."""
